//! From what was found to a report that names the culprit.

use std::time::Duration;

use paceline_transport::{LinkError, Stamp};

use super::blame::{Blame, blame};
use super::operation::Waiting;
use super::stamp::Fingerprint;
use super::walk::{Fault, FaultCause};
use super::witness::Witness;
use crate::algorithm::ROWS;
use crate::collective::Collective;
use crate::error::{CallName, Error, ErrorKind};

const SAME_ORDER: &str = "all ranks must make the same calls in the same order";
const SAME_CALLS: &str = "every rank must make the same calls before it drops the communicator";

/// A call that failed while moving data.
pub(crate) fn explain(witness: &Witness, fault: &Fault, call: &CallName, mine: Stamp) -> Error {
    let Fault { peer, round, step, cause } = fault;
    let error = match cause {
        FaultCause::Link(error) => link_failed(witness, *peer, error),
        FaultCause::Stamp { theirs } => mismatch(witness, *peer, call, Fingerprint::unpack(mine), *theirs),
        FaultCause::History => {
            let cause =
                format!("{} made other calls before this one than rank {} did", witness.name(*peer), witness.me);
            Error::new(ErrorKind::Mismatch, cause).blaming([*peer]).hint(SAME_ORDER)
        }
        FaultCause::Length { arrived, wanted } => {
            let cause = format!(
                "{} sends a message of at least {arrived} bytes where {wanted} are expected",
                witness.name(*peer)
            );
            Error::new(ErrorKind::Mismatch, cause).hint("make the counts of both sides equal")
        }
    };
    error.during(call.clone()).at(*round, *step).blaming([*peer])
}

/// Two ranks that mean different things by one call: this one, and `peer`.
pub(crate) fn mismatch(
    witness: &Witness,
    peer: usize,
    call: &CallName,
    mine: Option<Fingerprint>,
    theirs: Stamp,
) -> Error {
    let side = |fingerprint: Option<Fingerprint>| match fingerprint {
        Some(fingerprint) => fingerprint.to_string(),
        None => "something that can't be read".into(),
    };
    let unpacked = Fingerprint::unpack(theirs);
    let me = witness.me;
    let mut cause =
        format!("the ranks disagree: rank {me} calls {}, {} calls {}", side(mine), witness.name(peer), side(unpacked));
    if let (Some(mine), Some(theirs)) = (mine, unpacked)
        && (Fingerprint { row: theirs.row, ..mine }) == theirs
    {
        let row = |fingerprint: Fingerprint| ROWS.get(usize::from(fingerprint.row)).map_or("none", |row| row.name);
        cause.push_str(&format!(", but the one by {} and the other by {}", row(mine), row(theirs)));
    }
    let hint = format!("make call #{} of this communicator the same on all ranks", call.sequence);
    Error::new(ErrorKind::Mismatch, cause).blaming([me, peer]).hint(hint)
}

/// A call over the boards that has ended, and that a peer believed to be another.
pub(crate) fn ended_differently(witness: &Witness, peer: usize, (mine, theirs): (Stamp, Stamp)) -> Error {
    let fingerprint = Fingerprint::unpack(mine);
    let call = CallName {
        collective: fingerprint.map_or(Collective::Barrier, |fingerprint| fingerprint.collective),
        sequence: 0,
        algorithm: "direct".into(),
        size: witness.places.len(),
    };
    let ended = witness.ended.iter().rev().find(|ended| ended.stamp == mine);
    let call = ended.map_or(call, |ended| ended.call.clone());
    mismatch(witness, peer, &call, fingerprint, theirs).during(call)
}

/// A frame of a collective that this rank has already ended, without that frame.
pub(crate) fn late_frame(witness: &Witness, peer: usize, sequence: u64, theirs: Stamp) -> Error {
    let ended = witness.ended.iter().find(|ended| ended.call.sequence == sequence);
    match ended {
        Some(ended) => mismatch(witness, peer, &ended.call, ended.fingerprint(), theirs).during(ended.call.clone()),
        None => {
            let what = Fingerprint::unpack(theirs).map_or("something".into(), |fingerprint| fingerprint.to_string());
            let cause = format!("{} sent for call #{sequence} ({what}), which ended here long ago", witness.name(peer));
            Error::new(ErrorKind::Mismatch, cause).blaming([peer])
        }
    }
}

/// A peer that has left, for the reason that it gave, if it gave one.
fn gone(witness: &Witness, peer: usize, cause: String) -> Error {
    let Some(report) = witness.peers[peer].farewell.clone() else {
        return Error::new(ErrorKind::PeerLeft, cause).blaming([peer]).hint(SAME_CALLS);
    };
    let blamed = if report.peers.is_empty() { vec![peer] } else { report.peers.clone() };
    let reason = Error::from_report(report);
    let cause = format!("{cause}, because another of its communicators has failed: {reason}");
    Error::new(reason.kind(), cause).blaming(blamed)
}

/// A link that can't go on.
pub(crate) fn link_failed(witness: &Witness, peer: usize, error: &LinkError) -> Error {
    if witness.peers[peer].left {
        return gone(witness, peer, format!("{} has dropped its communicator ({error})", witness.name(peer)));
    }
    let kind = if matches!(error, LinkError::Protocol(_)) { ErrorKind::Internal } else { ErrorKind::PeerDied };
    Error::new(kind, format!("lost {}: {error}", witness.name(peer)))
        .blaming([peer])
        .hint(format!("look at rank {peer}'s output and at the network between"))
}

/// A peer that could not join the group that this rank has joined.
pub(crate) fn could_not_join(witness: &Witness, peer: usize, peers: Vec<usize>, how: &str) -> Error {
    let blamed = if peers.is_empty() { vec![peer] } else { peers };
    Error::new(ErrorKind::Rendezvous, format!("{} could not join: {how}", witness.name(peer))).blaming(blamed)
}

/// A peer whose process is gone.
pub(crate) fn died(witness: &Witness, peer: usize, how: &str) -> Error {
    Error::new(ErrorKind::PeerDied, format!("lost {}: {how}", witness.name(peer)))
        .blaming([peer])
        .hint(format!("look at rank {peer}'s output and exit status"))
}

/// A peer that dropped its communicator before its part was done.
pub(crate) fn left(witness: &Witness, wait: &Waiting, call: CallName) -> Error {
    let cause = format!(
        "{} has dropped its communicator, but this rank waits in round {} {} it",
        witness.name(wait.peer),
        wait.round,
        if wait.receives { "for data from" } else { "to send to" },
    );
    gone(witness, wait.peer, cause).during(call).at(wait.round, wait.step)
}

/// A call whose deadline has passed, after so long, with what is known to be wrong with this rank's links. [`blame`] finds
/// the culprit.
pub(crate) fn timed_out(
    witness: &Witness,
    call: &CallName,
    waits: &[Waiting],
    (waited, trouble): (Duration, Option<String>),
) -> Error {
    let mut cause = format!("waited {:.1} s", waited.as_secs_f64());
    if let Some(wait) = waits.first() {
        let direction = if wait.receives { "for chunk" } else { "to send chunk" };
        let preposition = if wait.receives { "from" } else { "to" };
        cause.push_str(&format!(
            " in round {} {direction} {} {preposition} {}",
            wait.round,
            wait.chunk,
            witness.name(wait.peer)
        ));
    }
    if let Some(last) = witness.ended.back() {
        cause
            .push_str(&format!("; the last call that ended here was {} #{}", last.call.collective, last.call.sequence));
    }
    let theirs = || {
        let mut told = (0..witness.peers.len()).filter_map(|rank| Some((rank, witness.peers[rank].status.as_ref()?)));
        told.find_map(|(rank, status)| Some(format!("{} says that {}", witness.name(rank), status.trouble.as_ref()?)))
    };
    if let Some(trouble) = trouble.map(|trouble| format!("at this rank {trouble}")).or_else(theirs) {
        cause.push_str(&format!("; {trouble}"));
    }
    let first: Vec<usize> = waits.iter().map(|wait| wait.peer).collect();
    let list = |ranks: &[usize]| ranks.iter().map(|rank| witness.name(*rank)).collect::<Vec<_>>().join(", ");
    let error = Error::new(ErrorKind::Timeout, String::new());
    let error = match blame(witness.me, call, &first, |rank| witness.peers[rank].status.as_ref()) {
        Blame::Silent(silent) => {
            cause.push_str(&format!("; no answer from {}: stopped, or busy outside the library", list(&silent)));
            error.blaming(silent).hint("look at what that rank is doing; if it is only slow, raise the timeout")
        }
        Blame::Elsewhere(elsewhere) => {
            let what = |rank: &usize| format!("{} is in {}", witness.name(*rank), witness.whereabouts(*rank));
            cause.push_str("; ");
            cause.push_str(&elsewhere.iter().map(what).collect::<Vec<_>>().join(", "));
            error.blaming(elsewhere).hint(SAME_ORDER)
        }
        Blame::Circle(circle) => {
            cause.push_str(&format!("; all answer, and {} wait for one another", list(&circle)));
            error.blaming(circle).hint("the network may be slow or stuck; raise the timeout or look at the links")
        }
    };
    let mut report = error.report().clone();
    report.cause = cause;
    let error = Error::from_report(report).during(call.clone());
    match waits.first() {
        Some(wait) => error.at(wait.round, wait.step),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use paceline_transport::Peer;

    use super::super::notice::Status;
    use super::*;

    fn check(here: Option<&str>, there: Option<&str>, want: &[&str], unwanted: &[&str]) {
        let peer = |rank| Peer { host: "h".into(), pid: rank, house: 0, cores: 1 };
        let mut witness = Witness::new(0, [peer(0), peer(1)].into());
        let call = CallName { collective: Collective::AllReduce, sequence: 7, algorithm: "ring".into(), size: 2 };
        let waits_for = vec![0];
        let trouble = there.map(str::to_owned);
        witness.peers[1].status =
            Some(Status { current: Some(call.clone()), ended: 6, waits_for, trouble, ..Status::default() });
        let error = timed_out(&witness, &call, &[], (Duration::from_secs(3), here.map(str::to_owned))).to_string();
        assert!(want.iter().all(|words| error.contains(words)), "{error}");
        assert!(!unwanted.iter().any(|words| error.contains(words)), "{error}");
    }

    #[test]
    fn a_late_call_names_the_port_that_is_down() {
        check(None, None, &["waited 3.0 s"], &["at this rank", "says that"]);
        check(Some("rxe0 is down"), None, &["waited 3.0 s", "at this rank rxe0 is down"], &["says that"]);
        check(None, Some("rxe1 is down"), &["rank 1 (host h, pid 1) says that rxe1 is down"], &["at this rank"]);
        check(Some("rxe0 is down"), Some("rxe1 is down"), &["at this rank rxe0 is down"], &["rxe1"]);
    }
}
