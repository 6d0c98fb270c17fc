//! What a schedule takes: time, idleness, memory.
//!
//! Every rank does one step at a time, in the order of its list. What a step makes is on another rank
//! [`Costs::send`] later; sending keeps nobody busy.
//!
//! A run that was measured has the same form: [`Price::measured`] makes one of its timelines, and [`Costs::measured`] takes
//! from them what the stages cost.

mod costs;
mod measured;
mod run;
#[cfg(test)]
mod tests;

pub use costs::{Costs, Overlap, StageCost};
pub use run::Timed;
pub(crate) use run::{Stuck, run};

use thiserror::Error;

use super::action::{Kind, Step};
use super::check::{CheckError, check};
use super::schedule::Schedule;

/// Why there is no price.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum PriceError {
    /// The table is not a schedule.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The costs are not costs of its stages.
    #[error("{0}")]
    Costs(String),
}

/// What one rank takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RankPrice {
    /// How long it computes.
    pub busy: f64,
    /// How long it doesn't, from 0 to the end of the last rank.
    pub idle: f64,
    /// From the start of its first step to the end of its last.
    pub span: f64,
    /// The most activations that it holds, each of one stage for one micro-batch. One is held from the start of its
    /// forward to the end of its whole backward or of its weights' gradient. Multiply by how much of the model a stage
    /// is.
    pub in_flight: u32,
}

/// What a schedule takes.
#[derive(Clone, PartialEq, Debug)]
pub struct Price {
    /// The end of the last rank's last step.
    pub makespan: f64,
    /// What each rank takes.
    pub ranks: Vec<RankPrice>,
    /// When each rank does what.
    pub timelines: Vec<Vec<Timed>>,
}

impl Price {
    /// The part of all ranks' time in which they idle, 0 to 1.
    #[must_use]
    pub fn bubble_of_total(&self) -> f64 {
        ratio(self.idle(), self.idle() + self.busy())
    }

    /// How much longer the step takes than without idling: idle time in busy time.
    #[must_use]
    pub fn bubble_of_ideal(&self) -> f64 {
        ratio(self.idle(), self.busy())
    }

    fn idle(&self) -> f64 {
        self.ranks.iter().map(|rank| rank.idle).sum()
    }

    fn busy(&self) -> f64 {
        self.ranks.iter().map(|rank| rank.busy).sum()
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// What the schedule takes with those costs.
///
/// # Errors
///
/// When it is no schedule, or when a cost is missing, negative or not finite.
pub fn price(schedule: &Schedule, costs: &Costs) -> Result<Price, PriceError> {
    check(schedule)?;
    if let Some(fault) = costs.fault(schedule.n_stages()) {
        return Err(PriceError::Costs(fault));
    }
    let timelines = run(schedule, costs).expect("what waits for nobody for ever does so at any cost");
    Ok(of_timelines(timelines, |timed| costs.of(timed.step)))
}

/// What timelines come to, if `busy` says how long a step of them computes.
fn of_timelines(timelines: Vec<Vec<Timed>>, busy: impl Fn(&Timed) -> f64) -> Price {
    let last_end = |timeline: &Vec<Timed>| timeline.last().map_or(0.0, |last| last.end);
    let makespan = timelines.iter().map(last_end).fold(0.0, f64::max);
    let rank = |timeline: &Vec<Timed>| {
        let busy = timeline.iter().map(&busy).sum();
        let span = timeline.first().map_or(0.0, |first| last_end(timeline) - first.start);
        RankPrice { busy, idle: makespan - busy, span, in_flight: in_flight(timeline) }
    };
    Price { makespan, ranks: timelines.iter().map(rank).collect(), timelines }
}

/// Follows from the order alone. In a pair, the forward takes before the backward frees.
fn in_flight(timeline: &[Timed]) -> u32 {
    let (mut now, mut most) = (0u32, 0);
    for action in timeline.iter().map(|timed| timed.step).flat_map(Step::actions) {
        match action.kind {
            Kind::Forward => now += 1,
            Kind::Backward | Kind::Weight => now -= 1,
            Kind::Input => {}
        }
        most = most.max(now);
    }
    most
}
