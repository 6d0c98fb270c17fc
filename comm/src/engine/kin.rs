//! What the communicators of one rank know of each other: why one of them has failed, and what the rank does in another.
//!
//! A rank that fails in one communicator usually ends, and drops the others. Who waits for it there would learn only that
//! it left; so it takes leave with the reason, and the rank to blame is named in all of them.
//!
//! A rank that waits in one communicator looks at no other. Who waits for it there would hold it for stopped; so while it
//! waits, it answers for the others what it is doing and whom it waits for.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use paceline_transport::Endpoint;

use super::notice::{Notice, Status};
use crate::error::{CallName, Error, ErrorKind, Report};

/// The communicators of one rank: that of all ranks, and those split off.
#[derive(Clone, Default)]
pub(crate) struct Kin {
    /// The first failure. Ranks have their numbers in the world.
    first: Arc<Mutex<Option<Report>>>,
    relatives: Arc<Mutex<Vec<Weak<dyn Relative>>>>,
    asks: Arc<OnceLock<Asks>>,
}

/// Whether a caller who waits is to give up, and why.
type Asks = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// What a rank does in one of its communicators.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Doing {
    pub(crate) call: CallName,
    /// Whom it waits for, by their numbers in the world.
    pub(crate) waits_for: Vec<usize>,
}

impl Doing {
    /// The same for a communicator whose ranks have the numbers `members` in the world.
    pub(crate) fn status(&self, members: &[usize], ended: u64) -> Status {
        let place = |rank: &usize| members.iter().position(|member| member == rank);
        let (inside, outside): (Vec<usize>, Vec<usize>) = self.waits_for.iter().partition(|rank| place(rank).is_some());
        let waits_for = inside.iter().filter_map(place).collect();
        Status { current: Some(self.call.clone()), ended, waits_for, beside: Some(outside), ..Status::default() }
    }
}

/// One of a rank's communicators, as the others see it.
pub(crate) trait Relative: Send + Sync {
    /// Answers those who ask in this communicator, with what the rank does in another; unless somebody drives this one,
    /// and answers for it.
    fn answer(&self, doing: &Doing);
}

impl Kin {
    /// Takes one in.
    pub(crate) fn admit(&self, relative: Weak<dyn Relative>) {
        let mut relatives = self.relatives.lock().expect("no panic while held");
        relatives.retain(|known| known.strong_count() > 0);
        relatives.push(relative);
    }

    /// Has blocking calls ask whether to give up; the first counts.
    pub(crate) fn ask_while_waiting(&self, asks: Asks) {
        let _ = self.asks.set(asks);
    }

    /// Whether blocking calls ask.
    pub(crate) fn has_asks(&self) -> bool {
        self.asks.get().is_some()
    }

    /// Why a caller who waits is to give up, if it is.
    pub(crate) fn gives_up(&self) -> Option<Error> {
        let reason = self.asks.get().and_then(|asks| asks())?;
        Some(Error::new(ErrorKind::Aborted, reason))
    }

    /// Those there are, if there is more than one.
    pub(crate) fn relatives(&self) -> Vec<Arc<dyn Relative>> {
        let relatives = self.relatives.lock().expect("no panic while held");
        if relatives.len() > 1 { relatives.iter().filter_map(Weak::upgrade).collect() } else { Vec::new() }
    }

    /// Notes that one has failed, whose ranks have the numbers `members` in the world.
    pub(crate) fn note(&self, report: &Report, members: &[usize]) {
        let peers = report.peers.iter().filter_map(|rank| members.get(*rank).copied()).collect();
        self.first.lock().expect("no panic while held").get_or_insert_with(|| Report { peers, ..report.clone() });
    }

    /// Why one has failed, if one has, for another whose ranks have the numbers `members` in the world.
    pub(crate) fn failure(&self, members: &[usize]) -> Option<Report> {
        let report = self.first.lock().expect("no panic while held").clone()?;
        let peers = report.peers.iter().filter_map(|rank| members.iter().position(|member| member == rank)).collect();
        Some(Report { peers, ..report })
    }

    /// Tells the peers of an endpoint, whose ranks have the numbers `members` in the world, why this rank leaves, if one has
    /// failed.
    pub(crate) fn take_leave(&self, members: &[usize], endpoint: &mut Endpoint) {
        let Some(report) = self.failure(members) else { return };
        let (me, notice) = (endpoint.me(), Notice::Farewell(report).encode());
        (0..endpoint.size()).filter(|peer| *peer != me).for_each(|peer| endpoint.notify(peer, &notice));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Collective;
    use crate::error::{Error, ErrorKind};

    #[test]
    fn ranks_are_numbered_as_each_communicator_does() {
        let kin = Kin::default();
        assert_eq!(kin.failure(&[0, 1, 2, 3]), None);
        let report = |rank| Error::new(ErrorKind::Timeout, "late").blaming([rank]).report().clone();
        kin.note(&report(1), &[6, 4, 2]);
        kin.note(&report(0), &[6, 4, 2]);
        for (members, want) in [(&[0, 1, 2, 3, 4][..], &[4][..]), (&[5, 4, 3], &[1]), (&[6, 2], &[])] {
            assert_eq!(kin.clone().failure(members).unwrap().peers, want, "the first failure counts");
        }
    }

    #[test]
    fn a_status_for_others_numbers_ranks_as_they_do() {
        let call = CallName { collective: Collective::AllReduce, sequence: 4, algorithm: "ring".into(), size: 3 };
        let doing = Doing { call: call.clone(), waits_for: vec![2, 5] };
        let status = doing.status(&[7, 5, 3], 9);
        let (waits_for, beside) = (vec![1], Some(vec![2]));
        assert_eq!(status, Status { current: Some(call), ended: 9, waits_for, beside, ..Status::default() });
    }
}
