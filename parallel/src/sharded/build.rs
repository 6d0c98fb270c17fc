//! Cuts units into blocks, and makes the groups that they are sent in.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Mutex;

use paceline_comm::{Collective, Communicator};

use super::follow::{Log, Role};
use super::keeper::{Inside, Keep};
use super::memory::Memory;
use super::offload::{Kept, Store};
use super::options::{Gather, Offload, ShardedOptions, Stage};
use super::predict::Predictor;
use super::unit::Unit;
use crate::data::{Groups, Overlap, same_parameters, summed_along};
use crate::error::{Doing, Error, Result};
use crate::group::{Elements, Group};
use crate::mesh::{Axis, Mesh};
use crate::parameter::Parameter;
use crate::state::Numbers;
use crate::value::Kind;

/// Axes along which a parameter's values are the same on all ranks: cut, and further ones.
struct Axes {
    cut: Vec<Axis>,
    further: Vec<Axis>,
}

impl Axes {
    fn of(mesh: &Mesh, parameter: &Parameter, options: &ShardedOptions) -> Result<Axes> {
        let cut = cut(mesh, options);
        if let Some(axis) = cut.iter().find(|axis| parameter.spread().along(**axis) == Kind::Varying) {
            let name = parameter.name();
            return Err(Error::invalid(format!(
                "{name} is different on each rank along {axis}, and can't be cut among them: give it a state of its own, cut \
                 along other axes"
            )));
        }
        let data: Vec<Axis> = options.shard_axes.iter().chain(&options.replicate_axes).copied().collect();
        let further = summed_along(mesh, parameter, &data).into_iter().filter(|axis| !cut.contains(axis)).collect();
        Ok(Axes { cut, further })
    }

    fn all(&self) -> Vec<Axis> {
        Axis::ALL.into_iter().filter(|axis| self.cut.contains(axis) || self.further.contains(axis)).collect()
    }
}

/// The axes along which ranks have different blocks.
fn cut(mesh: &Mesh, options: &ShardedOptions) -> Vec<Axis> {
    options.shard_axes.iter().copied().filter(|axis| mesh.size(*axis) > 1).collect()
}

pub(super) fn build(units: Vec<Vec<Parameter>>, mesh: &Mesh, options: ShardedOptions) -> Result<Keep> {
    if options.shard_axes.is_empty() {
        return Err(Error::invalid("a sharded state needs an axis along which it is cut"));
    }
    if matches!(options.gather, Gather::Int8 { block: 0 }) {
        return Err(Error::invalid("values in 8 bits need a scale for at least one element"));
    }
    let parameters: Vec<Parameter> = units.iter().flatten().cloned().collect();
    let axes = parameters.iter().map(|parameter| Axes::of(mesh, parameter, &options)).collect::<Result<Vec<_>>>()?;
    let wanted: BTreeSet<Vec<Axis>> =
        axes.iter().flat_map(|axes| [axes.further.clone(), axes.all()]).filter(|axes| !axes.is_empty()).collect();
    let groups = Groups::agree(mesh, &wanted)?;
    let all_axes = groups.all_axes();
    if !all_axes.is_empty() {
        let worlds = mesh.layout().group(mesh.rank(), &all_axes);
        same_parameters(&Group::along(mesh, &all_axes)?, &worlds, &parameters)?;
    }
    let shard = Group::along(mesh, &options.shard_axes)?;
    let data: Vec<Axis> = options.shard_axes.iter().chain(&options.replicate_axes).copied().collect();
    let reduce = another(shard.comm())?;
    let control = Group::of(another(Group::along(mesh, &data)?.comm())?, data[0]);

    let (mut made, mut places, mut rest) = (Vec::new(), BTreeMap::new(), &axes[..]);
    for (place, members) in units.into_iter().enumerate() {
        members.iter().enumerate().for_each(|(member, parameter)| {
            places.insert(parameter.name().to_owned(), (place, member));
        });
        let (axes, others) = rest.split_at(members.len());
        rest = others;
        let mut unit = Unit::new(members, shard.rank(), shard.size())?;
        begin(&mut unit, axes, &groups, &shard, options.stage)?;
        unit.further = further(&unit, axes);
        made.push(unit);
    }
    let store = match &options.offload {
        Offload::Memory => None,
        Offload::Files(directory) => {
            let mut store = Store::new(directory, made.len())?;
            for (place, unit) in made.iter_mut().enumerate() {
                let empty = Numbers::zeros(unit.dtype, 0);
                let values = std::mem::replace(&mut unit.shard.values, empty);
                store.write(place, Kept { values, moments: BTreeMap::new() })?;
            }
            store.flush()?;
            Some(store)
        }
    };
    let inside = Inside {
        order: (0..made.len()).rev().collect(),
        units: made,
        is_ordered: false,
        next: 0,
        rounds: 0,
        is_last: false,
        is_finished: false,
        completions: 0,
        is_first_step: true,
        flights: VecDeque::new(),
        may_wait: true,
        abandoned: Vec::new(),
        predictor: Predictor::default(),
        log: Log::default(),
        role: Role::Alike,
        store,
        overlap: Overlap::default(),
        gathers: Overlap::default(),
        peak: Memory::default(),
        most_here: 0,
    };
    let cut = cut(mesh, &options);
    Ok(Keep { places, cut, shard, reduce, control, groups, options, inside: Mutex::new(inside) })
}

/// A communicator of the same ranks, whose calls don't wait for those of the first.
fn another(comm: &Communicator) -> Result<Communicator> {
    let made = comm.split(Some(0), comm.rank() as i64);
    let made = made.doing(|| "making a second communicator of the same ranks".to_owned())?;
    made.ok_or_else(|| Error::invalid("a split gave this rank no communicator"))
}

/// Takes over the values of the first rank, and takes this rank's block of them.
fn begin(unit: &mut Unit, axes: &[Axes], groups: &Groups, shard: &Group, stage: Stage) -> Result<()> {
    let mut flat = unit.flat()?;
    for (axes, range) in axes.iter().zip(&unit.ranges) {
        let Some(group) = groups.along(&axes.all()) else { continue };
        let mut values = Elements::of(&flat.tensor(range.clone(), range.len(), flat.dtype())?)?;
        group.count(Collective::Broadcast, values.bytes());
        values.broadcast(group.comm(), 0).doing(|| "taking over the values of rank 0".to_owned())?;
        flat.write(range.start, &values.into_tensor(range.len())?)?;
    }
    let block = unit.len / shard.size();
    let first = shard.rank() * block;
    unit.shard.values.write(0, &flat.tensor(first..first + block, block, flat.dtype())?)?;
    unit.give(&Elements::of(&flat.tensor(0..unit.len, unit.len, unit.dtype)?)?)?;
    if stage == Stage::Parameters {
        unit.round_block()?;
        let coming = unit.release();
        assert!(coming.is_none(), "nothing has been gathered yet");
    }
    Ok(())
}

/// Which stretches of the block are added along which further axes.
fn further(unit: &Unit, axes: &[Axes]) -> Vec<(Vec<Axis>, Vec<Range<usize>>)> {
    let len = unit.shard.values.len();
    if axes.iter().all(|other| other.further == axes[0].further) {
        let axes = axes[0].further.clone();
        let all = std::iter::once(0..len).collect();
        return if axes.is_empty() { Vec::new() } else { vec![(axes, all)] };
    }
    let mut found: BTreeMap<Vec<Axis>, Vec<Range<usize>>> = BTreeMap::new();
    for segment in &unit.shard.segments {
        let member = unit.parameters.iter().position(|parameter| parameter.is(&segment.parameter));
        let axes = &axes[member.expect("a segment of one of them")].further;
        if !axes.is_empty() {
            found.entry(axes.clone()).or_default().push(segment.range.clone());
        }
    }
    found.into_iter().collect()
}
