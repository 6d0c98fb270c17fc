//! Proves that a table is a schedule, and that no rank waits for ever.
//!
//! [`check`] looks at computations alone:
//!
//! - every stage takes every micro-batch forward once, and backward once, whole or in halves;
//! - each on the rank that the placement says, and in an order that it can be done in;
//! - run across ranks, every action's inputs come.
//!
//! [`prove`] adds the transfers ([`lower`](super::lower())) and looks at the whole:
//!
//! - every transfer that is needed is sent once, after what makes it, and received once, before what needs it;
//! - it ends with [`Semantics::Rendezvous`], in which a send waits until its peer stands at the receive;
//! - it ends with [`Semantics::Buffered`], in which a send never waits.
//!
//! Ranks choose nothing: each has one next action, and every transfer has one sender, one receiver and a name. Which of
//! the ranks that can move does so first makes no difference to what can happen afterwards, so one run stands for all.
//! A runtime that posts receives early lies between the two semantics, and so does one with limited buffers.

mod fault;
mod lowered;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

pub use fault::{CheckError, Fault};
pub use lowered::{Proof, Semantics, verify};

use super::action::{Action, Kind, Step};
use super::lower::lower;
use super::price::{Costs, Stuck, run};
use super::schedule::Schedule;

/// Where each action is: rank and position.
type Places = HashMap<Action, (u32, usize)>;

/// Whether the table is a schedule.
///
/// # Errors
///
/// The first thing that is wrong. Memory and time are proportional to the table, whatever its header says.
pub fn check(schedule: &Schedule) -> Result<(), CheckError> {
    if schedule.n_stages() == 0 || schedule.n_micro_batches == 0 {
        return Err(CheckError { rank: 0, position: 0, action: "the table".to_owned(), fault: Fault::Empty });
    }
    let places = places(schedule)?;
    for stage in 0..schedule.n_stages() {
        for micro_batch in 0..schedule.n_micro_batches {
            once_in_order(schedule, &places, stage, micro_batch)?;
        }
    }
    match run(schedule, &Costs::even(schedule.n_stages())) {
        Ok(_) => Ok(()),
        Err(stuck) => Err(deadlock(&places, &stuck)),
    }
}

/// Checks the schedule, adds the transfers, and proves the whole.
///
/// # Errors
///
/// As [`check`]; what [`lower`](super::lower()) adds to a schedule is always proved.
pub fn prove(schedule: &Schedule) -> Result<Proof, CheckError> {
    verify(schedule, &lower(schedule)?)
}

/// Finds every action; each must be in range, on its rank, and there once.
fn places(schedule: &Schedule) -> Result<Places, CheckError> {
    let mut places = Places::new();
    let (n_stages, n_micro_batches) = (schedule.n_stages(), schedule.n_micro_batches);
    for (rank, list) in (0..).zip(&schedule.ranks) {
        for (position, step) in list.iter().enumerate() {
            let error = |fault| Err(CheckError { rank, position, action: step.to_string(), fault });
            if let Step::Both { forward, backward } = step
                && (forward.kind != Kind::Forward || !backward.kind.makes_gradient())
            {
                return error(Fault::NotAPair);
            }
            for action in step.actions() {
                if action.stage >= n_stages {
                    return error(Fault::NoSuchStage(n_stages));
                }
                if action.micro_batch >= n_micro_batches {
                    return error(Fault::NoSuchMicroBatch(n_micro_batches));
                }
                let owner = schedule.rank_of(action.stage, action.micro_batch);
                if owner != rank {
                    return error(Fault::WrongRank(owner));
                }
                if let Some((_, first)) = places.insert(action, (rank, position)) {
                    return error(Fault::Twice(first));
                }
            }
        }
    }
    Ok(places)
}

/// Whether one stage takes one micro-batch forward and backward, in this order.
fn once_in_order(s: &Schedule, places: &Places, stage: u32, micro_batch: u32) -> Result<(), CheckError> {
    let rank = s.rank_of(stage, micro_batch);
    let action = |kind| Action { stage, kind, micro_batch };
    let at = |kind| places.get(&action(kind)).map(|&(_, position)| position);
    let error = |position: usize, kind, fault| {
        let list = &s.ranks[rank as usize];
        let action = list.get(position).map_or_else(|| action(kind).to_string(), Step::to_string);
        Err(CheckError { rank, position, action, fault })
    };
    let end = s.ranks[rank as usize].len();
    let [forward, whole, input, weight] = Kind::ALL.map(at);
    let missing = |needed_by: Option<usize>, kind| error(needed_by.unwrap_or(end), kind, Fault::Missing(action(kind)));
    let Some(forward) = forward else {
        return missing(whole.or(input).or(weight), Kind::Forward);
    };
    let (kind, first) = match (whole, input, weight) {
        (Some(whole), None, None) => (Kind::Backward, whole),
        (Some(whole), Some(input), _) => {
            return error(input, Kind::Input, Fault::TwoBackwards(action(Kind::Backward), whole));
        }
        (Some(whole), None, Some(weight)) => {
            return error(weight, Kind::Weight, Fault::TwoBackwards(action(Kind::Backward), whole));
        }
        (None, None, None) => return missing(None, Kind::Backward),
        (None, None, Some(weight)) => return missing(Some(weight), Kind::Input),
        (None, Some(input), None) => return missing(Some(input), Kind::Weight),
        (None, Some(input), Some(weight)) if weight <= input => {
            return error(weight, Kind::Weight, Fault::Early(action(Kind::Input), input));
        }
        (None, Some(input), Some(_)) => (Kind::Input, input),
    };
    if first <= forward { error(first, kind, Fault::Early(action(Kind::Forward), forward)) } else { Ok(()) }
}

/// The error for a table whose ranks wait for each other.
fn deadlock(places: &Places, stuck: &Stuck) -> CheckError {
    let Stuck { rank, waiting, needs, ref positions } = *stuck;
    let halves = Action { kind: Kind::Input, ..needs };
    let needs = if places.contains_key(&needs) { needs } else { halves };
    let (owner, position) = places[&needs];
    let stands = positions[owner as usize];
    let fault = Fault::Deadlock { needs, rank: owner, position, stands };
    CheckError { rank, position: positions[rank as usize], action: waiting.to_string(), fault }
}
