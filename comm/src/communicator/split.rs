//! Groups of a communicator's ranks as communicators of their own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use paceline_transport::GroupId;

use super::Communicator;
use super::spare::Spare;
use crate::error::{Error, ErrorKind, Result};
use crate::request::CallOptions;
use crate::select::Facts;

/// What each rank says: its color (and whether it has one), its key, a number for the group if it is its first rank, and what
/// links it has to spare.
const WORDS: usize = 8;
/// The largest group whose ranks an error lists.
const LISTED_MAX: usize = 16;

impl Communicator {
    /// Splits the communicator: ranks of one `color` make a new one, ordered by `key`, then by their rank here. Every rank
    /// calls it; a rank without a color gets `None`.
    ///
    /// The new communicator has links of its own and doesn't depend on this one, which may be dropped. They may be those of an
    /// earlier communicator of the same ranks in the same order that all have dropped: each rank keeps the last one's, with a
    /// few MiB at the most, until another is dropped.
    ///
    /// # Errors
    ///
    /// As any collective, and if the new links can't be made; then this communicator is dead too.
    pub fn split(&self, color: Option<u64>, key: i64) -> Result<Option<Communicator>> {
        let nonce = paceline_transport::endpoint::random_number();
        let (low, high) = (nonce as u64, (nonce >> 64) as u64);
        // Nobody else may take it meanwhile: what is said of it must still be so.
        let mut spare = self.inner.roots.spares.take();
        let [group_low, group_high, digest] = Spare::said(spare.as_mut());
        let mine =
            [u64::from(color.is_some()), color.unwrap_or(0), key as u64, low, high, group_low, group_high, digest];
        let mut all = vec![0u64; WORDS * self.size()];
        if let Err(error) = self.all_gather(&mine, &mut all) {
            let failed = error.kind() != ErrorKind::InvalidArgument;
            spare.into_iter().filter(|_| failed).for_each(|spare| spare.dismiss(&self.inner.roots.kin));
            return Err(error);
        }
        let Some(color) = color else {
            self.inner.roots.spares.keep(spare);
            return Ok(None);
        };
        let said = |rank: usize| &all[rank * WORDS..][..WORDS];
        let mut group: Vec<usize> = (0..self.size()).filter(|rank| said(*rank)[..2] == [1, color]).collect();
        group.sort_by_key(|rank| (said(*rank)[2] as i64, *rank));
        let mut id = [0u8; 16];
        id[..8].copy_from_slice(&said(group[0])[3].to_le_bytes());
        id[8..].copy_from_slice(&said(group[0])[4].to_le_bytes());
        let members: Arc<[usize]> = group.iter().map(|rank| self.inner.members[*rank]).collect();
        let spares = group.iter().map(|rank| [5, 6, 7].map(|word| said(*rank)[word]));
        let joined = match spare {
            Some(spare) if spare.suits(&members, spares) => self.join_again(spare, GroupId(id)),
            spare => {
                self.inner.roots.spares.keep(spare);
                self.join_group(GroupId(id), members)
            }
        };
        joined.map(Some).map_err(|error| self.failed(of_group(&error, color, &group)))
    }

    /// A communicator over the links that the last one of the same ranks has left. All have said that they have it, but one may
    /// not have heard so from the others: as in a new group, it is now that it must show.
    fn join_again(&self, spare: Spare, id: GroupId) -> Result<Communicator> {
        let Spare { members, mut endpoint, facts, .. } = spare;
        endpoint.revive();
        let (roots, timeout) = (self.inner.roots.clone(), self.inner.timeout);
        let comm = Communicator::over(endpoint, roots, (id, members), facts, timeout);
        comm.with(CallOptions { timeout: Some(self.patience()), ..CallOptions::default() }).barrier()?;
        Ok(comm)
    }

    fn join_group(&self, id: GroupId, members: Arc<[usize]>) -> Result<Communicator> {
        let patience = self.patience();
        let deadline = Instant::now() + patience;
        let endpoint = self.inner.roots.fabric.connect(id, &members, deadline)?;
        let facts = Facts::unknown(members.len(), self.inner.facts.brought().clone());
        let (roots, timeout) = (self.inner.roots.clone(), self.inner.timeout);
        Communicator::over(endpoint, roots, (id, members), facts, timeout).agree(patience)
    }

    /// How long what goes on beside the engine may take: less than a call, so that ranks which are past it and wait in
    /// their next call hear from this one before they give it up.
    pub(super) fn patience(&self) -> Duration {
        let timeout = self.timeout().min(Duration::from_secs(1 << 30));
        timeout - (timeout / 5).min(Duration::from_secs(1))
    }
}

/// A group's error, with the ranks' numbers outside of the group.
fn of_group(error: &Error, color: u64, group: &[usize]) -> Error {
    let blamed = error.peers().iter().filter_map(|rank| group.get(*rank)).copied();
    let here = if group.len() <= LISTED_MAX { format!(", ranks {group:?} here") } else { String::new() };
    let cause = format!("split: joining the {} ranks of color {color}{here}: {error}", group.len());
    Error::new(error.kind(), cause).blaming(blamed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReduceOp;

    #[test]
    fn a_groups_error_names_the_ranks_outside() {
        let inside = Error::new(ErrorKind::Rendezvous, "joining rank 1 (host a, pid 7): gone").blaming([1]);
        let error = of_group(&inside, 3, &[6, 4, 2]);
        assert_eq!((error.kind(), error.peers()), (ErrorKind::Rendezvous, &[4][..]));
        let want =
            "rendezvous: split: joining the 3 ranks of color 3, ranks [6, 4, 2] here: rendezvous: joining rank 1 ";
        assert!(error.to_string().starts_with(want), "{error}");
    }

    /// Also where a call of the communicator that is dropped is still under way.
    #[test]
    fn who_leaves_since_another_communicator_failed_says_so_to_ranks_that_were_not_in_it() {
        let (leaves, has_left) = std::sync::mpsc::channel();
        let (mut leaves, mut has_left) = (Some(leaves), Some(has_left));
        std::thread::scope(|scope| {
            for world in Communicator::in_process(3).unwrap() {
                let rank = world.rank();
                let leaves = if rank == 1 { leaves.take() } else { None };
                let has_left = if rank == 0 { has_left.take() } else { None };
                scope.spawn(move || {
                    let first = world.split((rank < 2).then_some(0), 0).unwrap();
                    let last = world.split((rank > 0).then_some(0), 0).unwrap();
                    match rank {
                        0 => {
                            has_left.unwrap().recv().unwrap();
                            let first = first.unwrap();
                            let call = || first.all_reduce_in_place(&mut [1.0f32; 4], ReduceOp::Sum).err();
                            // What rank 1 has sent may still make a sum of the call that it began.
                            let error = call().or_else(call).unwrap().to_string();
                            assert!(
                                error.contains("rank 1 (host") && error.contains("(rank 2 of the world"),
                                "{error}"
                            );
                        }
                        1 => {
                            let begun = first.as_ref().unwrap().start_all_reduce(vec![1.0f32; 4], ReduceOp::Sum);
                            let error = last.as_ref().unwrap().recv(&mut [0u8], 1).unwrap_err();
                            assert!(error.to_string().contains("rank 1 (rank 2 of the world"), "{error}");
                            drop((begun, first, last, world));
                            leaves.unwrap().send(()).unwrap();
                        }
                        _ => drop((first, last, world)),
                    }
                });
            }
        });
    }
}
