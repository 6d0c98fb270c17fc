//! Proves a lowered table: every transfer has its two ends in the right places, and nobody waits for ever.

use std::collections::{HashMap, HashSet};

use super::fault::{CheckError, Fault};
use crate::pipeline::action::Step;
use crate::pipeline::lower::{Lowered, Transfer, incoming, outgoing};
use crate::pipeline::schedule::Schedule;

/// When a send ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Semantics {
    /// When its peer stands at the receive: nothing is buffered, and no receive is posted before its position.
    Rendezvous,
    /// At once; a receive waits until it is sent.
    Buffered,
}

/// What a proof has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proof {
    /// How many transfers there are between ranks.
    pub n_transfers: usize,
    /// Whether between any two ranks, in each direction, receives have the order of sends: then channels that keep
    /// their order need no tags.
    pub in_order: bool,
}

/// Where both ends of the transfers are.
#[derive(Default)]
struct Ends {
    sends: HashMap<Transfer, (u32, usize)>,
    recvs: HashMap<Transfer, (u32, usize)>,
}

/// Proves that a lowered table does what a schedule says, and that no rank waits for ever in it.
///
/// The schedule must be one: see [`check`](super::check()).
///
/// # Errors
///
/// What is wrong, and where.
pub fn verify(schedule: &Schedule, lists: &[Vec<Lowered>]) -> Result<Proof, CheckError> {
    computes_alike(schedule, lists)?;
    let ends = ends(schedule, lists)?;
    transfers_in_place(schedule, lists, &ends)?;
    for semantics in [Semantics::Rendezvous, Semantics::Buffered] {
        run(lists, semantics)?;
    }
    let order = |is_send| -> HashMap<(u32, u32), Vec<Transfer>> {
        let mut order = HashMap::<_, Vec<_>>::new();
        for (me, &action) in (0..).zip(lists).flat_map(|(me, list)| list.iter().map(move |action| (me, action))) {
            match action {
                Lowered::Send { to, transfer } if is_send => order.entry((me, to)).or_default().push(transfer),
                Lowered::Recv { from, transfer } if !is_send => order.entry((from, me)).or_default().push(transfer),
                _ => {}
            }
        }
        order
    };
    Ok(Proof { n_transfers: ends.sends.len(), in_order: order(true) == order(false) })
}

/// The same computations in the same order.
fn computes_alike(schedule: &Schedule, lists: &[Vec<Lowered>]) -> Result<(), CheckError> {
    assert_eq!(schedule.ranks.len(), lists.len(), "a list for every rank");
    for (rank, (steps, list)) in (0..).zip(schedule.ranks.iter().zip(lists)) {
        let mut steps = steps.iter();
        for (position, action) in list.iter().enumerate() {
            let Lowered::Compute(step) = action else { continue };
            let want = steps.next();
            if want != Some(step) {
                let fault = Fault::Changed(want.map_or_else(|| "nothing".to_owned(), Step::to_string));
                return Err(CheckError { rank, position, action: step.to_string(), fault });
            }
        }
        if let Some(step) = steps.next() {
            let (action, fault) = ("the end".to_owned(), Fault::Changed(step.to_string()));
            return Err(CheckError { rank, position: list.len(), action, fault });
        }
    }
    Ok(())
}

/// Finds every transfer's ends. Each must be there once; a stray one is of no computation of its rank.
fn ends(schedule: &Schedule, lists: &[Vec<Lowered>]) -> Result<Ends, CheckError> {
    let mut ends = Ends::default();
    for (rank, list) in (0..).zip(lists) {
        let actions = || list.iter().flat_map(|lowered| lowered.actions());
        let made: HashSet<_> = actions().filter_map(|action| outgoing(schedule, action)).collect();
        let needed: HashSet<_> = actions().filter_map(|action| incoming(schedule, action)).collect();
        for (position, &lowered) in list.iter().enumerate() {
            let (is_known, before) = match lowered {
                Lowered::Compute(_) => continue,
                Lowered::Send { to, transfer } => {
                    (made.contains(&(to, transfer)), ends.sends.insert(transfer, (rank, position)))
                }
                Lowered::Recv { from, transfer } => {
                    (needed.contains(&(from, transfer)), ends.recvs.insert(transfer, (rank, position)))
                }
            };
            let fault = match before {
                _ if !is_known => Fault::Stray,
                Some((_, first)) => Fault::Twice(first),
                None => continue,
            };
            return Err(CheckError { rank, position, action: lowered.to_string(), fault });
        }
    }
    Ok(ends)
}

/// Whether what is needed is received before, and what is made is sent after.
fn transfers_in_place(schedule: &Schedule, lists: &[Vec<Lowered>], ends: &Ends) -> Result<(), CheckError> {
    for (rank, list) in (0..).zip(lists) {
        for (position, &lowered) in list.iter().enumerate() {
            let error =
                |position: usize, fault| Err(CheckError { rank, position, action: list[position].to_string(), fault });
            for action in lowered.actions() {
                if let Some((_, transfer)) = incoming(schedule, action) {
                    match ends.recvs.get(&transfer) {
                        None => return error(position, Fault::NotReceived(transfer.to_string())),
                        Some(&(_, recv)) if recv > position => {
                            return error(position, Fault::Before(recv, list[recv].to_string()));
                        }
                        Some(_) => {}
                    }
                }
                if let Some((_, transfer)) = outgoing(schedule, action) {
                    match ends.sends.get(&transfer) {
                        None => return error(position, Fault::NotSent(transfer.to_string())),
                        Some(&(_, send)) if send < position => {
                            return error(send, Fault::Before(position, lowered.to_string()));
                        }
                        Some(_) => {}
                    }
                }
            }
        }
    }
    Ok(())
}

/// Runs the table until every rank has ended, or none can move.
fn run(lists: &[Vec<Lowered>], semantics: Semantics) -> Result<(), CheckError> {
    let mut at = vec![0; lists.len()];
    let mut sent = HashSet::new();
    loop {
        let (mut moved, mut waits) = (false, None);
        for (rank, list) in lists.iter().enumerate() {
            while let Some(&lowered) = list.get(at[rank]) {
                let peer = match (lowered, semantics) {
                    (Lowered::Compute(_), _) => None,
                    (Lowered::Send { transfer, .. }, Semantics::Buffered) => {
                        sent.insert(transfer);
                        None
                    }
                    (Lowered::Recv { transfer, .. }, Semantics::Buffered) if sent.contains(&transfer) => None,
                    (Lowered::Send { to, transfer }, Semantics::Rendezvous) => {
                        let peer = to as usize;
                        let other = Lowered::Recv { from: rank as u32, transfer };
                        let is_there = lists[peer].get(at[peer]) == Some(&other);
                        at[peer] += usize::from(is_there);
                        (!is_there).then_some(to)
                    }
                    // In a rendezvous the sender moves both.
                    (Lowered::Recv { from, .. }, _) => Some(from),
                };
                if let Some(peer) = peer {
                    waits = waits.or(Some((rank, peer)));
                    break;
                }
                at[rank] += 1;
                moved = true;
            }
        }
        match waits {
            None => return Ok(()),
            Some(_) if moved => {}
            Some((rank, peer)) => {
                let stands = at[peer as usize];
                let there = lists[peer as usize].get(stands).map_or_else(|| "the end".to_owned(), Lowered::to_string);
                let fault = Fault::DeadlockTransfer { rank: peer, stands, at: there };
                let (rank, position) = (rank as u32, at[rank]);
                return Err(CheckError { rank, position, action: lists[rank as usize][position].to_string(), fault });
            }
        }
    }
}

/// Runs the table alone, for tests of the runs themselves.
#[cfg(test)]
pub(super) fn ends_with(lists: &[Vec<Lowered>], semantics: Semantics) -> Result<(), CheckError> {
    run(lists, semantics)
}
