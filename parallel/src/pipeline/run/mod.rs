//! Runs a schedule: each rank goes down its list, computes stages, sends and receives.
//!
//! Lists are lowered and proved before anything moves. Sends go on beside the computing, and receives are begun a few
//! transfers ahead, in the list's order; both ends have the transfers of a pair of ranks in one order, so that messages need no
//! numbers. What a forward pass leaves for its backward pass is dropped with the latter.
//!
//! A run notes when it computes what ([`Report::timeline`]); waiting for transfers isn't computing.

mod evaluate;
mod kept;
mod stage;
#[cfg(test)]
mod tests;
mod ties;
mod transfers;

pub use stage::{Stage, Wire};
pub use ties::Ties;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use candle_core::Tensor;

use super::Schedule;
use super::action::{Action, Kind, Step};
use super::check::verify;
use super::lower::{Lowered, lower};
use super::price::Timed;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::state::State;
use kept::Kept;
use transfers::Transfers;

/// One rank's part in a pipeline.
pub struct Pipeline {
    schedule: Schedule,
    list: Vec<Lowered>,
    group: Group,
    stages: BTreeMap<u32, Arc<dyn Stage>>,
    ties: Option<Ties>,
}

/// What a run has to say.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What the last stage made of each micro-batch that it computed here, by micro-batch: losses.
    pub losses: BTreeMap<u32, Tensor>,
    /// Forward passes whose activations, or whose inputs of weight gradients, were here at once at most, over all stages.
    pub most_in_flight: usize,
    /// What was computed here when, in seconds since the run began on this rank, in order; the two computations of a pair come
    /// one after the other. With those of the other ranks, [`Price::measured`](super::price::Price::measured) makes the
    /// bubble of them, and [`draw`](super::draw) a drawing.
    pub timeline: Vec<Timed>,
}

/// When a run began, and what it has computed since.
struct Clock {
    begun: Instant,
    timeline: Vec<Timed>,
}

impl Clock {
    /// Computes, and notes when.
    fn time<T>(&mut self, action: Action, compute: impl FnOnce() -> T) -> T {
        let start = self.begun.elapsed().as_secs_f64();
        let made = compute();
        let end = self.begun.elapsed().as_secs_f64();
        self.timeline.push(Timed { step: Step::One(action), start, end });
        made
    }
}

impl Pipeline {
    /// A part in a pipeline along a group, whose ranks are the schedule's; `stages` are those that the schedule gives to this
    /// rank.
    ///
    /// # Errors
    /// The schedule isn't one, or could wait for ever; it is for another number of ranks; or other stages are given.
    pub fn new(schedule: Schedule, group: Group, stages: BTreeMap<u32, Arc<dyn Stage>>) -> Result<Pipeline> {
        let mut lists = lower(&schedule)?;
        // Messages between two ranks carry no numbers.
        if !verify(&schedule, &lists)?.in_order {
            return Err(Error::invalid(
                "the schedule's transfers between two ranks are received in another order than sent",
            ));
        }
        let (ranks, size) = (schedule.n_ranks() as usize, group.size());
        if ranks != size {
            return Err(Error::invalid(format!("the schedule is for {ranks} ranks, and there are {size} along pp")));
        }
        let (wanted, given) = (schedule.stages_of(group.rank() as u32), stages.keys().copied().collect::<Vec<_>>());
        if wanted != given {
            let rank = group.rank();
            return Err(Error::invalid(format!(
                "the schedule has rank {rank} compute the stages {wanted:?}, and it is given {given:?}"
            )));
        }
        let list = std::mem::take(&mut lists[group.rank()]);
        Ok(Pipeline { schedule, list, group, stages, ties: None })
    }

    /// The same, with parameters that other ranks have, too.
    #[must_use]
    pub fn with_ties(self, ties: Ties) -> Pipeline {
        Pipeline { ties: Some(ties), ..self }
    }

    /// Parameters that other ranks have, too.
    #[must_use]
    pub fn ties(&self) -> Option<&Ties> {
        self.ties.as_ref()
    }

    /// The schedule.
    #[must_use]
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Takes all micro-batches forward and back. Gradients of parameters go to whoever keeps them; `state` learns when the
    /// last of them begin to come.
    ///
    /// # Errors
    /// A stage fails, or a rank is lost.
    pub fn run(&self, state: &dyn State) -> Result<Report> {
        let last_forward = self.list.iter().rposition(|item| item.actions().any(|action| action.kind == Kind::Forward));
        let mut clock = Clock { begun: Instant::now(), timeline: Vec::new() };
        let mut transfers = Transfers::new(&self.group, &self.list, &self.stages);
        let (mut kept, mut report) = (Kept::default(), Report::default());
        let owed = self.ties.as_ref().map(Ties::open);
        for (place, item) in self.list.iter().enumerate() {
            match *item {
                Lowered::Send { to, transfer } => transfers.send(to as usize, transfer)?,
                Lowered::Recv { transfer, .. } => transfers.begin_receiving(transfer)?,
                Lowered::Compute(_) => {
                    for action in item.actions() {
                        self.compute(action, &mut transfers, &mut kept, &mut clock, &mut report)
                            .map_err(|error| at(action, error))?;
                    }
                }
            }
            // From here on each parameter's open uses only become fewer.
            if Some(place) == last_forward {
                state.last_micro_batch();
            }
        }
        transfers.finish()?;
        if let (Some(ties), Some(owed)) = (&self.ties, owed) {
            ties.gather(owed)?;
        }
        report.most_in_flight = kept.most();
        report.timeline = clock.timeline;
        Ok(report)
    }

    fn compute(
        &self,
        action: Action,
        transfers: &mut Transfers<'_>,
        kept: &mut Kept,
        clock: &mut Clock,
        report: &mut Report,
    ) -> Result<()> {
        let Action { stage, kind, micro_batch } = action;
        let model = &self.stages[&stage];
        let (is_first, is_last) = (stage == 0, stage + 1 == self.schedule.n_stages());
        match kind {
            Kind::Forward => {
                let input = if is_first { None } else { Some(transfers.take_activation(stage, micro_batch)?) };
                let output = clock.time(action, || kept.forward(model.as_ref(), (stage, micro_batch), input))?;
                if is_last {
                    report.losses.insert(micro_batch, output);
                } else {
                    transfers.give_activation(stage, micro_batch, output);
                }
            }
            Kind::Backward | Kind::Input => {
                let gradient = if is_last { None } else { Some(transfers.take_gradient(stage, micro_batch)?) };
                let weights_later = kind == Kind::Input;
                let input = clock.time(action, || kept.backward((stage, micro_batch), gradient, weights_later))?;
                if let Some(input) = input {
                    transfers.give_gradient(stage, micro_batch, input);
                }
            }
            Kind::Weight => clock.time(action, || kept.weights((stage, micro_batch)))?,
        }
        Ok(())
    }
}

/// An error with the action in which it came up.
fn at(action: Action, error: Error) -> Error {
    match error {
        Error::Communication { doing, source } => Error::Communication { doing: format!("{action}: {doing}"), source },
        Error::Invalid(text) => Error::Invalid(format!("{action}: {text}")),
        other => other,
    }
}
