//! Adds to a schedule the transfers between ranks.
//!
//! A transfer follows what makes it on the sender's list. On the receiver's, it stands behind what that rank has begun
//! by then, if all costs are equal. So there is one order of all computations and transfers in which every rank's list
//! appears as it is, and in which each transfer is one event of both its ranks. Hence no rank waits for ever, even
//! where a send waits for its receive; [`verify`](super::check::verify) runs it, too.
//!
//! Stages on one rank hand over without a transfer: `0F3` leaves its activation where `1F3` finds it.

mod transfer;

pub use transfer::{Lowered, Payload, Transfer};

use super::action::{Action, Kind, Step};
use super::check::{CheckError, check};
use super::price::{Costs, run};
use super::schedule::Schedule;

/// What every rank does, transfers among it.
///
/// # Errors
///
/// When the table is no schedule.
pub fn lower(schedule: &Schedule) -> Result<Vec<Vec<Lowered>>, CheckError> {
    check(schedule)?;
    let costs = Costs::even(schedule.n_stages());
    let timelines = run(schedule, &costs).expect("a schedule that was checked");
    let mut events = Vec::new();
    for (rank, timed) in (0..).zip(&timelines).flat_map(|(rank, list)| list.iter().map(move |timed| (rank, timed))) {
        let transfers = timed.step.actions().filter_map(|action| outgoing(schedule, action));
        events.extend(transfers.map(|(to, transfer)| (timed.end, Event::Transfer { from: rank, to, transfer })));
        events.push((timed.start, Event::Compute { rank, step: timed.step }));
    }
    events.sort_by(|(a, this), (b, that)| a.total_cmp(b).then(this.order().cmp(&that.order())));
    let mut lists = vec![Vec::new(); schedule.ranks.len()];
    for (_, event) in events {
        match event {
            Event::Compute { rank, step } => lists[rank as usize].push(Lowered::Compute(step)),
            Event::Transfer { from, to, transfer } => {
                lists[from as usize].push(Lowered::Send { to, transfer });
                lists[to as usize].push(Lowered::Recv { from, transfer });
            }
        }
    }
    Ok(lists)
}

/// What of the action's result another rank needs, and which.
pub(super) fn outgoing(schedule: &Schedule, action: Action) -> Option<(u32, Transfer)> {
    let Action { stage, kind, micro_batch } = action;
    let (payload, next) = match kind {
        Kind::Forward => (Payload::Activation, Some(stage + 1).filter(|&next| next < schedule.n_stages())),
        Kind::Backward | Kind::Input => (Payload::Gradient, stage.checked_sub(1)),
        Kind::Weight => return None,
    };
    let to = schedule.rank_of(next?, micro_batch);
    let is_remote = to != schedule.rank_of(stage, micro_batch);
    is_remote.then_some((to, Transfer { payload, stage, micro_batch }))
}

/// What of another rank's the action needs, and whose.
pub(super) fn incoming(schedule: &Schedule, action: Action) -> Option<(u32, Transfer)> {
    let Action { stage, kind, micro_batch } = action;
    let (kind, stage) = match kind {
        Kind::Forward => (Kind::Forward, stage.checked_sub(1)?),
        Kind::Backward | Kind::Input => (kind, Some(stage + 1).filter(|&next| next < schedule.n_stages())?),
        Kind::Weight => return None,
    };
    let (_, transfer) = outgoing(schedule, Action { stage, kind, micro_batch })?;
    Some((schedule.rank_of(stage, micro_batch), transfer))
}

#[derive(Clone, Copy)]
enum Event {
    Compute { rank: u32, step: Step },
    Transfer { from: u32, to: u32, transfer: Transfer },
}

impl Event {
    /// The order of events of one moment: what arrives, then what starts.
    fn order(&self) -> (bool, u32, u64) {
        match *self {
            Event::Transfer { from, transfer, .. } => (false, from, transfer.tag()),
            Event::Compute { rank, .. } => (true, rank, 0),
        }
    }
}
