//! How the ranks of a run ended, and whether that is how they should have.

use std::collections::BTreeSet;
use std::time::Duration;

use paceline_comm::{Collective, Error, ErrorKind, Result};
use paceline_transport::Time;
use paceline_transport::sim::{Fault, SimNetwork};

use crate::scenario::Scenario;

/// A death or a cut is known to all within this, beside the network's own delays.
const PROMPT: Duration = Duration::from_secs(1);

/// How one rank ended.
pub struct Ending {
    pub at: Time,
    pub results: Vec<Result<Vec<i64>>>,
}

/// Whether a run ended as it should; else, why not.
pub fn check(scenario: &Scenario, network: &SimNetwork, endings: &[Option<Ending>]) -> Result<(), String> {
    for (rank, ending) in endings.iter().enumerate() {
        match ending {
            Some(ending) => check_rank(scenario, rank, ending).map_err(|why| format!("rank {rank} {why}"))?,
            None if network.runs_again(rank, network.now()) => return Err(format!("rank {rank} did not end")),
            None => {}
        }
    }
    check_barriers(scenario, endings)
}

fn check_rank(scenario: &Scenario, rank: usize, ending: &Ending) -> Result<(), String> {
    for (number, (call, result)) in scenario.calls.iter().zip(&ending.results).enumerate() {
        match result {
            Ok(got) => {
                let want = call.wanted(number, rank, scenario.options.ranks);
                if let Some(at) = (0..want.len().max(got.len())).find(|&at| got.get(at) != want.get(at)) {
                    return Err(format!("call {number}: element {at} is {:?} and not {:?}", got.get(at), want.get(at)));
                }
            }
            Err(error) if scenario.is_survivable() => return Err(format!("call {number} failed: {error}")),
            Err(error) => check_blame(scenario, rank, error).map_err(|why| format!("call {number} {why}: {error}"))?,
        }
    }
    check_time(scenario, rank, ending)
}

/// Whether an error names a rank that something was done to.
fn check_blame(scenario: &Scenario, rank: usize, error: &Error) -> Result<(), String> {
    let struck: BTreeSet<usize> = scenario.faults.iter().flat_map(struck_by).collect();
    if !matches!(error.kind(), ErrorKind::PeerDied | ErrorKind::PeerLeft | ErrorKind::Timeout) {
        return Err(format!("ended with {:?}", error.kind()));
    }
    let innocent: Vec<_> = error.peers().iter().filter(|peer| !struck.contains(peer)).collect();
    // Who can't reach whom across a partition is known to these two alone: others see a circle of ranks that wait.
    let parted = |fault: &Fault| matches!(fault, Fault::Partition { until: Time::NEVER, .. });
    let in_circle = error.kind() == ErrorKind::Timeout && scenario.faults.iter().any(parted);
    match () {
        () if error.peers().is_empty() => Err("names nobody".into()),
        () if in_circle && innocent.len() < error.peers().len() => Ok(()),
        () if !innocent.is_empty() => Err(format!("names {innocent:?}, to whom nothing was done")),
        () if error.kind() == ErrorKind::PeerDied && error.peers() == [rank] && error.reporter().is_none() => {
            Err("names itself".into())
        }
        () => Ok(()),
    }
}

/// The ranks that something is done to.
fn struck_by(fault: &Fault) -> [usize; 2] {
    match *fault {
        Fault::Kill { rank, .. } | Fault::Stop { rank, .. } | Fault::Straggle { rank, .. } => [rank, rank],
        Fault::Partition { a, b, .. } | Fault::Cut { a, b, .. } => [a, b],
        Fault::DropNotices { source, target, .. } => [source, target],
    }
}

/// Whether a rank ended by its deadline, or as soon as a death or a cut could be known.
fn check_time(scenario: &Scenario, rank: usize, ending: &Ending) -> Result<(), String> {
    let starts = Time(0).after(scenario.starts[rank]);
    let runs = scenario.faults.iter().filter_map(|fault| match *fault {
        Fault::Stop { rank: stopped, until, .. } if stopped == rank && until != Time::NEVER => Some(until),
        _ => None,
    });
    let runs = runs.max().unwrap_or(Time(0));
    let latest = starts.max(runs).after(scenario.timeout);
    if ending.at > latest {
        return Err(format!("ended at {:?}, after its deadline {latest:?}", ending.at));
    }
    let only_told = scenario.faults.iter().all(|fault| {
        let lasts =
            matches!(fault, Fault::Stop { until, .. } | Fault::Partition { until, .. } if *until == Time::NEVER);
        !lasts
    });
    let prompt = Time(0).after(PROMPT);
    if only_told && ending.results.iter().any(Result::is_err) && ending.at > prompt {
        return Err(format!("ended at {:?}, though what went wrong could be known by {prompt:?}", ending.at));
    }
    Ok(())
}

/// Nobody leaves a barrier before everybody has come.
fn check_barriers(scenario: &Scenario, endings: &[Option<Ending>]) -> Result<(), String> {
    let last = scenario.starts.iter().max().copied().unwrap_or_default();
    for (number, call) in scenario.calls.iter().enumerate() {
        let passed = |ending: &&Ending| call.row.collective == Collective::Barrier && ending.results[number].is_ok();
        if let Some(early) = endings.iter().flatten().filter(passed).find(|ending| ending.at < Time(0).after(last)) {
            return Err(format!("a rank left barrier {number} at {:?}, before the last came at {last:?}", early.at));
        }
    }
    Ok(())
}
