//! What the communicators of one rank know of each other: why one of them has failed.
//!
//! A rank that fails in one communicator usually ends, and drops the others. Who waits for it there would learn only that
//! it left; so it takes leave with the reason, and the rank to blame is named in all of them.

use std::sync::{Arc, Mutex};

use crate::error::Report;

/// The communicators of one rank: that of all ranks, and those split off.
#[derive(Clone, Default, Debug)]
pub(crate) struct Kin {
    /// The first failure. Ranks have their numbers in the world.
    first: Arc<Mutex<Option<Report>>>,
}

impl Kin {
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
}

#[cfg(test)]
mod tests {
    use super::*;
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
}
