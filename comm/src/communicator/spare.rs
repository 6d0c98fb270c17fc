//! Links that the last communicator to be dropped has left, for the next one of the same ranks.

use std::sync::{Arc, Mutex};

use paceline_transport::{Endpoint, GroupId};

use crate::engine::Kin;
use crate::select::Facts;

/// What a dropped communicator has left at this rank.
pub(super) struct Spare {
    /// Which group it was.
    pub(super) group: GroupId,
    /// Each of its ranks' number in the world.
    pub(super) members: Arc<[usize]>,
    pub(super) endpoint: Endpoint,
    pub(super) facts: Facts,
}

impl Spare {
    /// What a rank says of its spare in a split: which group's it is, and the links' digest.
    pub(super) fn said(spare: Option<&mut Spare>) -> [u64; 3] {
        let Some(spare) = spare else { return [0; 3] };
        let id = u128::from_le_bytes(spare.group.0);
        [id as u64, (id >> 64) as u64, spare.endpoint.digest()]
    }

    /// Gives the spare up after a failure. Others may have taken this rank at its word: they are told why it doesn't come.
    pub(super) fn dismiss(mut self, kin: &Kin) {
        kin.take_leave(&self.members, &mut self.endpoint);
    }

    /// Whether the ranks that have said this can use their spares for the group `members`: all have the same group's, and both
    /// ends of every link have counted the same.
    pub(super) fn suits(&self, members: &[usize], said: impl Iterator<Item = [u64; 3]>) -> bool {
        let id = u128::from_le_bytes(self.group.0);
        let (mut same, mut digest) = (*members == *self.members, 0);
        for [low, high, counted] in said {
            same &= (low, high) == (id as u64, (id >> 64) as u64);
            digest ^= counted;
        }
        same && digest == 0
    }
}

/// Room for one spare, which all communicators of a rank share.
#[derive(Clone, Default)]
pub(super) struct Spares {
    spare: Arc<Mutex<Option<Spare>>>,
}

impl Spares {
    /// Keeps a spare, instead of the one that was there.
    pub(super) fn keep(&self, spare: Option<Spare>) {
        let Some(spare) = spare else { return };
        let before = self.spare.lock().expect("no panic while held").replace(spare);
        drop(before);
    }

    pub(super) fn take(&self) -> Option<Spare> {
        self.spare.lock().expect("no panic while held").take()
    }
}

#[cfg(test)]
mod tests {
    use paceline_transport::rendezvous::Hub;
    use paceline_transport::{LinkKind, Setup};

    use crate::communicator::Communicator;
    use crate::reduce::ReduceOp;

    /// Ranks as threads that share memory as processes do.
    fn on_each(size: usize, work: impl Fn(&Communicator) + Sync) {
        let hub = Hub::new(size);
        std::thread::scope(|scope| {
            for rank in 0..size {
                let setup = Setup { links: vec![LinkKind::Shm], ..Setup::in_hub(&hub, rank) };
                let work = &work;
                scope.spawn(move || work(&Communicator::connect(&setup).unwrap()));
            }
        });
    }

    fn all(comm: &Communicator) -> Communicator {
        comm.split(Some(0), 0).unwrap().unwrap()
    }

    fn has_spare(comm: &Communicator) -> bool {
        comm.inner.roots.spares.spare.lock().unwrap().is_some()
    }

    fn check_sum(comm: &Communicator, len: usize) {
        let mut total = vec![comm.rank() as i64 + 1; len];
        comm.all_reduce_in_place(&mut total, ReduceOp::Sum).unwrap();
        let size = comm.size() as i64;
        assert!(total.iter().all(|element| *element == size * (size + 1) / 2), "{size} ranks, {len} elements");
    }

    #[test]
    fn links_are_used_again_whatever_went_over_them() {
        for size in [2, 3] {
            on_each(size, |comm| {
                for turn in 0..50usize {
                    let part = all(comm);
                    assert!(!has_spare(comm), "turn {turn}: the links of the last one are not used");
                    check_sum(&part, [1, 4, 100, 1000, 9][turn % 5]);
                    let (next, last) = ((part.rank() + 1) % size, (part.rank() + size - 1) % size);
                    let (mut theirs, bytes) = (vec![0u8; 5000], turn * 100);
                    part.send_recv(&vec![last as u8; bytes], next, &mut theirs[..bytes], last).unwrap();
                    assert!(theirs[..bytes].iter().all(|byte| usize::from(*byte) == (last + size - 1) % size));
                    part.broadcast(&mut theirs[..turn], turn % size).unwrap();
                    drop(part);
                    assert!(has_spare(comm), "turn {turn}: the links are not kept");
                }
            });
        }
    }

    #[test]
    fn links_with_something_on_them_are_not_used_again() {
        on_each(3, |comm| {
            for turn in 0..12 {
                let part = all(comm);
                check_sum(&part, 10);
                if part.rank() == turn % 3 {
                    part.send(&[7u8; 100], (turn + 1) % 3).unwrap();
                }
                drop(part);
            }
            let part = all(comm);
            check_sum(&part, 10);
        });
    }

    /// What is sent to a rank that has given its links back already lies on them, though that rank has seen nothing of it.
    #[test]
    fn links_with_something_late_on_them_are_not_used_again() {
        on_each(2, |comm| {
            for turn in 0..6 {
                let part = all(comm);
                check_sum(&part, 10);
                if comm.rank() == 1 {
                    drop(part);
                    comm.barrier().unwrap();
                } else {
                    comm.barrier().unwrap();
                    part.send(&[7u8; 100], 1).unwrap();
                    drop(part);
                }
                assert!(has_spare(comm), "turn {turn}: each rank alone finds nothing on them");
                let part = all(comm);
                assert!(has_spare(comm), "turn {turn}: they are not used again");
                check_sum(&part, 10);
            }
        });
    }

    #[test]
    fn links_are_used_by_one_group_at_a_time() {
        on_each(3, |comm| {
            let mut held = Vec::new();
            for turn in 0..12 {
                let part = all(comm);
                check_sum(&part, 10);
                if comm.rank() == turn % 3 {
                    held.push(part);
                }
            }
            let (one, other) = (all(comm), all(comm));
            check_sum(&one, 10);
            check_sum(&other, 20);
        });
    }

    /// Others of the same ranks, or the same ranks in another order.
    #[test]
    fn links_are_used_by_the_same_ranks_in_the_same_order() {
        on_each(4, |comm| {
            let me = comm.rank() as i64;
            for turn in 0..24u64 {
                let (color, key) = [(0, 0), (0, -me), (me as u64 % 2, 0), (me as u64 / 2, -me)][turn as usize / 2 % 4];
                let part = comm.split(Some(color), key).unwrap().unwrap();
                assert!(turn % 2 == 0 || !has_spare(comm), "turn {turn}: the links of the last one are not used");
                check_sum(&part, 10);
                let mut ranks = vec![0; part.size()];
                part.all_gather(&[me], &mut ranks).unwrap();
                assert_eq!(ranks[part.rank()], me);
                assert_eq!(ranks.is_sorted(), turn / 2 % 2 == 0, "turn {turn}: {ranks:?}");
            }
        });
    }

    #[test]
    fn a_communicator_that_has_failed_leaves_nothing() {
        on_each(2, |comm| {
            let part = all(comm);
            comm.barrier().unwrap();
            part.abort("for the test");
            assert!(part.barrier().is_err());
            drop(part);
            assert!(!has_spare(comm));
            let part = all(comm);
            check_sum(&part, 10);
        });
    }
}
