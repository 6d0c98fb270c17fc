//! Hears of every use and every gradient, and decides what is gathered and sent.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::Instant;

use candle_core::{DType, Tensor};
use paceline_comm::Communicator;

use super::follow::{Log, Role};
use super::memory::Memory;
use super::offload::Store;
use super::options::{Precision, ShardedOptions, Stage};
use super::predict::Predictor;
use super::sum::Sum;
use super::unit::Unit;
use crate::data::{Groups, Overlap};
use crate::error::{Error, Result};
use crate::group::{Group, Started};
use crate::mesh::Axis;
use crate::parameter::{Keeper, Parameter};
use crate::state::Numbers;

/// Gradients that are being reduced.
pub(super) struct Flight {
    pub(super) unit: usize,
    pub(super) started: Started,
    pub(super) begun: Instant,
    /// Of what is sent and what comes.
    pub(super) bytes: usize,
}

pub(super) struct Keep {
    /// The unit of each parameter, and its place there.
    pub(super) places: BTreeMap<String, (usize, usize)>,
    /// The axes along which ranks have different blocks.
    pub(super) cut: Vec<Axis>,
    /// The ranks among which the state is cut, with the account of its traffic. Values are gathered here.
    pub(super) shard: Group,
    /// The same ranks. Gradients have a communicator of their own, because they may leave later, relative to gathers, on a
    /// rank that doesn't use some parameter.
    pub(super) reduce: Communicator,
    /// All ranks with different data, for what they must agree on.
    pub(super) control: Group,
    pub(super) groups: Groups,
    pub(super) options: ShardedOptions,
    pub(super) inside: Mutex<Inside>,
}

pub(super) struct Inside {
    pub(super) units: Vec<Unit>,
    /// In which order units' gradients are sent, on every rank.
    pub(super) order: Vec<usize>,
    pub(super) is_ordered: bool,
    /// The first in that order that hasn't left in this round.
    pub(super) next: usize,
    /// Rounds of sending that ended in this step.
    pub(super) rounds: u64,
    pub(super) is_last: bool,
    pub(super) is_finished: bool,
    pub(super) completions: u64,
    pub(super) is_first_step: bool,
    pub(super) flights: VecDeque<Flight>,
    /// Whether sending may wait for what was sent before.
    pub(super) may_wait: bool,
    /// Gathers of values that weren't needed in the end, and may still be going on.
    pub(super) abandoned: Vec<Started>,
    pub(super) predictor: Predictor,
    pub(super) log: Log,
    pub(super) role: Role,
    pub(super) store: Option<Store>,
    pub(super) overlap: Overlap,
    pub(super) gathers: Overlap,
    pub(super) peak: Memory,
    /// The most units whose values were here or coming at a time.
    pub(super) most_here: usize,
}

impl Keep {
    /// The type in which a unit's gradients are added.
    pub(super) fn gradient_type(&self, unit: &Unit) -> DType {
        match self.options.gradients {
            Precision::OfParameters => unit.dtype,
            Precision::OfTraining => Numbers::type_for(unit.dtype),
        }
    }

    fn place(&self, parameter: &Parameter) -> Result<(usize, usize)> {
        let place = self.places.get(parameter.name()).copied();
        place.ok_or_else(|| Error::invalid(format!("{} is kept elsewhere", parameter.name())))
    }
}

impl Keeper for Keep {
    fn needed(&self, parameter: &Parameter) -> Result<()> {
        if self.options.stage < Stage::Parameters {
            return Ok(());
        }
        let (unit, _) = self.place(parameter)?;
        let mut inside = self.inside.lock().expect("no panic while held");
        if parameter.open_uses() > 0 {
            inside.units[unit].is_done = false;
        }
        self.bring(&mut inside, unit)
    }

    fn gradient(&self, parameter: &Parameter, gradient: Tensor) -> Result<()> {
        let (place, member) = self.place(parameter)?;
        let mut inside = self.inside.lock().expect("no panic while held");
        let unit = &mut inside.units[place];
        unit.seen[member].used = true;
        let (first, is_new) = (unit.ranges[member].start, unit.full.is_none());
        let mut full = unit.full.take().unwrap_or_else(|| Sum::zeros(self.gradient_type(unit), unit.len));
        full.add(first, &gradient)?;
        unit.full = Some(full);
        if is_new {
            inside.note_memory();
        }
        Ok(())
    }

    fn complete(&self, parameter: &Parameter) -> Result<()> {
        self.completed(&mut self.inside.lock().expect("no panic while held"), parameter)
    }

    fn given_up(&self, parameter: &Parameter) -> Result<()> {
        let mut inside = self.inside.lock().expect("no panic while held");
        inside.may_wait = false;
        let completed = self.completed(&mut inside, parameter);
        inside.may_wait = true;
        completed
    }
}

impl Keep {
    fn completed(&self, inside: &mut Inside, parameter: &Parameter) -> Result<()> {
        let (place, member) = self.place(parameter)?;
        let unit = &mut inside.units[place];
        unit.is_done = unit.is_idle();
        let sends_each = self.options.sends_each_micro_batch();
        // A follower that sent whole sums in its own last micro-batch would wait for ranks that wait for its values.
        if !sends_each && (!inside.is_last || inside.role.follows()) {
            return Ok(());
        }
        inside.completions += 1;
        let now = inside.completions;
        let unit = &mut inside.units[place];
        unit.last = now;
        unit.seen[member].completions += 1;
        if unit.has_left {
            // What comes after its unit has left in the last round is added in the end; else it begins another round.
            if !sends_each || !unit.is_complete() || !self.end_round(inside)? {
                return Ok(());
            }
        }
        self.send_complete(inside)
    }
}
