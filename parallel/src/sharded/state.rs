//! The state of a model that is cut among ranks.

use std::sync::{Arc, PoisonError};

use paceline_comm::Collective;

use super::build::build;
use super::keeper::{Inside, Keep};
use super::memory::Memory;
use super::offload::Kept;
use super::options::{Precision, ShardedOptions, Stage};
use super::sum::Sum;
use super::unit::Unit;
use crate::data::{Overlap, Progress};
use crate::error::{Doing, Result};
use crate::group::Group;
use crate::mesh::{Axis, Mesh};
use crate::parameter::Parameter;
use crate::state::{Numbers, Shard, State};

/// The state of a model that is cut among ranks (ZeRO 1 to 3, FSDP, HSDP): each unit's block is a [`Shard`].
///
/// With [`Stage::Parameters`] all ranks must go through the units in the same order: reading a parameter's value
/// ([`Parameter::value`]) is then something that all ranks do together. Other stages allow any order.
pub struct Sharded {
    parameters: Vec<Parameter>,
    keep: Arc<Keep>,
}

impl Sharded {
    /// Keeps the parameters of these units from now on. All ranks must have the same, in the same order; they begin with
    /// the values of rank 0. See [`units_by`](super::units_by).
    ///
    /// # Errors
    /// The parameters differ ([`Differs`](crate::Error::Differs) says where), a unit can't be cut along these axes, files
    /// can't be made, or a collective fails.
    pub fn new(units: Vec<Vec<Parameter>>, mesh: &Mesh, options: ShardedOptions) -> Result<Sharded> {
        let parameters: Vec<Parameter> = units.iter().flatten().cloned().collect();
        let keep = Arc::new(build(units, mesh, options)?);
        keep.inside.lock().expect("nobody else has it").note_memory();
        parameters.iter().for_each(|parameter| parameter.keep_by(&keep));
        Ok(Sharded { parameters, keep })
    }

    /// The bytes that the state takes now.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.inside().memory()
    }

    /// The bytes when they were most.
    #[must_use]
    pub fn most_memory(&self) -> Memory {
        self.inside().peak
    }

    /// The most units whose values were here, or on their way, at a time.
    #[must_use]
    pub fn most_units_here(&self) -> usize {
        self.inside().most_here
    }

    /// How much of the sending of gradients was hidden so far.
    #[must_use]
    pub fn overlap(&self) -> Overlap {
        self.inside().overlap
    }

    /// How much of the gathering of values in passes was hidden so far.
    #[must_use]
    pub fn gather_overlap(&self) -> Overlap {
        self.inside().gathers
    }

    /// In which order units' gradients leave: the same on all ranks.
    #[must_use]
    pub fn order(&self) -> Vec<usize> {
        self.inside().order.clone()
    }

    /// The ranks among which the state is cut, with the account of gathers and reductions.
    #[must_use]
    pub fn shard_group(&self) -> &Group {
        &self.keep.shard
    }

    /// The ranks with different data, with the account of what they agree on.
    #[must_use]
    pub fn control_group(&self) -> &Group {
        &self.keep.control
    }

    /// Groups along which blocks are added further: replicas', say.
    pub fn further_groups(&self) -> impl Iterator<Item = &Group> {
        self.keep.groups.iter()
    }

    fn inside(&self) -> std::sync::MutexGuard<'_, Inside> {
        self.keep.inside.lock().expect("no panic while held")
    }

    /// Takes over the order in which rank 0 saw units become complete, once it has seen one.
    fn order_units(&self, inside: &mut Inside) -> Result<()> {
        if inside.is_ordered {
            return Ok(());
        }
        let mut order: Vec<usize> = inside.order.clone();
        order.sort_by_key(|unit| match inside.units[*unit].last {
            0 => u64::MAX,
            last => last,
        });
        let has_seen = inside.units.iter().any(|unit| unit.last > 0);
        let mut message = vec![u32::from(has_seen)];
        message.extend(order.iter().map(|unit| *unit as u32));
        let control = &self.keep.control;
        control.count(Collective::Broadcast, 4 * message.len());
        let told = control.comm().broadcast(&mut message, 0);
        told.doing(|| "learning the order of units from rank 0".to_owned())?;
        if message[0] != 0 {
            inside.order = message[1..].iter().map(|unit| *unit as usize).collect();
            inside.is_ordered = true;
        }
        Ok(())
    }

    fn visit_unit(&self, unit: &mut Unit, each: &mut dyn FnMut(&mut Shard) -> Result<()>) -> Result<()> {
        let is_narrow = self.keep.options.gradients == Precision::OfParameters;
        if is_narrow {
            let zeros = || Ok(Numbers::zeros(unit.dtype, unit.len / self.keep.shard.size()));
            unit.shard.gradients = unit.kept.take().map_or_else(zeros, Sum::into_numbers)?;
        }
        let visited = each(&mut unit.shard);
        if is_narrow {
            let empty = Numbers::zeros(unit.dtype, 0);
            let gradients = std::mem::replace(&mut unit.shard.gradients, empty);
            unit.kept = Some(Sum::of(gradients, unit.dtype)?);
        }
        visited?;
        unit.round_block()
    }
}

impl State for Sharded {
    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn begin_step(&self, progress: &Progress) -> Result<()> {
        let role = self.keep.roles(progress)?;
        self.inside().role = role;
        Ok(())
    }

    fn last_micro_batch(&self) {
        self.inside().is_last = true;
    }

    fn finish_gradients(&self) -> Result<()> {
        self.keep.finish(&mut self.inside())
    }

    fn visit(&self, each: &mut dyn FnMut(&mut Shard) -> Result<()>) -> Result<()> {
        let mut inside = self.inside();
        let Inside { units, store, .. } = &mut *inside;
        let Some(store) = store else {
            return units.iter_mut().try_for_each(|unit| self.visit_unit(unit, each));
        };
        let len = units.len();
        if len > 0 {
            store.read_ahead(0)?;
        }
        for (place, unit) in units.iter_mut().enumerate() {
            let Kept { values, moments } = store.take()?;
            if place + 1 < len {
                store.read_ahead(place + 1)?;
            }
            (unit.shard.values, unit.shard.moments) = (values, moments);
            let visited = self.visit_unit(unit, each);
            let values = std::mem::replace(&mut unit.shard.values, Numbers::zeros(unit.dtype, 0));
            store.write(place, Kept { values, moments: std::mem::take(&mut unit.shard.moments) })?;
            visited?;
        }
        store.flush()
    }

    /// Gradients and values.
    fn sending(&self) -> Option<Overlap> {
        let inside = self.inside();
        Some(inside.overlap + inside.gathers)
    }

    fn distinct_along(&self) -> Vec<Axis> {
        self.keep.cut.clone()
    }

    fn publish(&self) -> Result<()> {
        let mut inside = self.inside();
        if self.keep.options.stage == Stage::Parameters {
            self.keep.release_all(&mut inside);
        } else {
            self.keep.gather_all(&mut inside)?;
        }
        self.order_units(&mut inside)?;
        self.keep.begin(&mut inside);
        Ok(())
    }
}

impl Drop for Sharded {
    /// Ranks that are slower still need this one for the values that they gather together. Not if it fails, by a panic or in the
    /// middle of a step, when gradients are on their way: others may wait for what it won't do any more, and learn at once.
    fn drop(&mut self) {
        // A visit that panicked has left it as it is.
        let mut inside = self.keep.inside.lock().unwrap_or_else(PoisonError::into_inner);
        self.keep.release_all(&mut inside);
        if !std::thread::panicking() && inside.flights.is_empty() {
            for started in std::mem::take(&mut inside.abandoned) {
                let _ = started.wait(String::new);
            }
        }
    }
}

impl std::fmt::Debug for Sharded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sharded {{ parameters: {}, options: {:?} }}", self.parameters.len(), self.keep.options)
    }
}
