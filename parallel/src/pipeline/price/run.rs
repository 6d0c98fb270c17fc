//! Runs a schedule: each step starts when its rank and its inputs are ready.

use super::costs::Costs;
use crate::pipeline::action::{Action, Kind, Step};
use crate::pipeline::schedule::Schedule;

/// A step, and when it happens.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Timed {
    /// What is done.
    pub step: Step,
    /// When it starts; the first step of all starts at 0.
    pub start: f64,
    /// When it ends.
    pub end: f64,
}

/// Where ranks stand that wait for each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stuck {
    /// How many steps each rank has done.
    pub(crate) positions: Vec<usize>,
    /// The lowest rank that waits.
    pub(crate) rank: u32,
    /// Its action that waits.
    pub(crate) waiting: Action,
    /// What it needs first. A whole backward stands for either form of it.
    pub(crate) needs: Action,
}

/// When forwards and gradients are there, by stage and micro-batch.
struct Done<'a> {
    schedule: &'a Schedule,
    send: f64,
    forward: Vec<Option<f64>>,
    gradient: Vec<Option<f64>>,
}

impl Done<'_> {
    fn index(&self, stage: u32, micro_batch: u32) -> usize {
        (stage * self.schedule.n_micro_batches + micro_batch) as usize
    }

    /// When the action's inputs are on its rank, or what is missing.
    fn ready(&self, action: Action) -> Result<f64, Action> {
        let Action { stage, kind, micro_batch } = action;
        let here = self.schedule.rank_of(stage, micro_batch);
        let at = |kind, stage| {
            let done = if kind == Kind::Forward { &self.forward } else { &self.gradient };
            let time = done[self.index(stage, micro_batch)].ok_or(Action { stage, kind, micro_batch })?;
            let is_local = self.schedule.rank_of(stage, micro_batch) == here;
            Ok(if is_local { time } else { time + self.send })
        };
        match kind {
            Kind::Forward if stage == 0 => Ok(0.0),
            Kind::Forward => at(Kind::Forward, stage - 1),
            Kind::Backward | Kind::Input => {
                let own = at(Kind::Forward, stage)?;
                let is_last = stage + 1 == self.schedule.n_stages();
                Ok(if is_last { own } else { own.max(at(Kind::Backward, stage + 1)?) })
            }
            Kind::Weight => at(Kind::Input, stage),
        }
    }

    fn finish(&mut self, action: Action, end: f64) {
        let index = self.index(action.stage, action.micro_batch);
        match action.kind {
            Kind::Forward => self.forward[index] = Some(end),
            Kind::Backward | Kind::Input => self.gradient[index] = Some(end),
            Kind::Weight => {}
        }
    }
}

/// When each rank does what. The stages and micro-batches of the schedule must be in range, and there must be a cost
/// for every stage.
pub(crate) fn run(schedule: &Schedule, costs: &Costs) -> Result<Vec<Vec<Timed>>, Stuck> {
    run_by(schedule, costs.send, |step| costs.of(step))
}

/// The same, if a send takes that long and `cost` says how long a step does.
pub(super) fn run_by(schedule: &Schedule, send: f64, cost: impl Fn(Step) -> f64) -> Result<Vec<Vec<Timed>>, Stuck> {
    let cells = schedule.n_stages() as usize * schedule.n_micro_batches as usize;
    let mut done = Done { schedule, send, forward: vec![None; cells], gradient: vec![None; cells] };
    let mut timelines: Vec<Vec<Timed>> = schedule.ranks.iter().map(|list| Vec::with_capacity(list.len())).collect();
    loop {
        let (mut moved, mut waits) = (false, None);
        for (rank, (list, timeline)) in (0..).zip(schedule.ranks.iter().zip(&mut timelines)) {
            while let Some(&step) = list.get(timeline.len()) {
                let mut start = timeline.last().map_or(0.0, |before| before.end);
                let needs = step.actions().find_map(|action| match done.ready(action) {
                    Ok(time) => {
                        start = time.max(start);
                        None
                    }
                    Err(needs) => Some((rank, action, needs)),
                });
                if needs.is_some() {
                    waits = waits.or(needs);
                    break;
                }
                let end = start + cost(step);
                step.actions().for_each(|action| done.finish(action, end));
                timeline.push(Timed { step, start, end });
                moved = true;
            }
        }
        match waits {
            None => return Ok(timelines),
            Some(_) if moved => {}
            Some((rank, waiting, needs)) => {
                let positions = timelines.iter().map(Vec::len).collect();
                return Err(Stuck { positions, rank, waiting, needs });
            }
        }
    }
}
