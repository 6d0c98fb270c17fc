//! Memory that all ranks of a group bring, and that those on one host map from each other.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use super::calls::{CLOSED, Calls};
use super::error::MeshError;
use super::fabric::{Fabric, GroupId};
use super::listen::Purpose;
use crate::inproc::{self, Meeting};
use crate::memory::Region;
use crate::shm;

impl Fabric {
    /// Makes `bytes` of memory on every rank of a group, and maps that of the `neighbours`: the ranks of the group, by their
    /// numbers in it, to which this one has a link through memory. All of the group call it, with the same `number`, which
    /// no other memory of the group has; `members` as in [`Fabric::connect`]. Returns each rank's memory, where it can be
    /// reached directly; this rank's own among them.
    ///
    /// # Errors
    ///
    /// There is no memory, or a neighbour doesn't come by `deadline`.
    ///
    /// # Panics
    ///
    /// As [`Fabric::connect`], and if `number` is 0.
    pub fn share(
        &self,
        group: GroupId,
        members: &[usize],
        (number, bytes): (u64, usize),
        neighbours: &[usize],
        deadline: Instant,
    ) -> Result<Vec<Option<Arc<Region>>>, MeshError> {
        assert!(number > 0, "number 0 is taken by the joining itself");
        let me = members.iter().position(|rank| *rank == self.rank).expect("a rank shares with groups that it is in");
        let made = Region::create(bytes);
        let mine = Arc::new(made.map_err(|error| MeshError::System { what: "making memory to share", error })?);
        #[cfg(feature = "rdma")]
        if let Some(adapters) = &self.adapters {
            adapters.admit(&mine);
        }
        Calls { fabric: self, group, members, me, deadline }.exchange(number, &mine, neighbours)
    }
}

impl Calls<'_> {
    fn exchange(
        &self,
        number: u64,
        mine: &Arc<Region>,
        neighbours: &[usize],
    ) -> Result<Vec<Option<Arc<Region>>>, MeshError> {
        let mut all: Vec<Option<Arc<Region>>> = vec![None; self.members.len()];
        all[self.me] = Some(mine.clone());
        let meeting = |from, to| Meeting { number, ..self.meeting(from, to) };
        let (threads, processes): (Vec<usize>, Vec<usize>) =
            neighbours.iter().copied().partition(|peer| self.shares_process(*peer));
        for peer in &threads {
            inproc::leave(meeting(self.me, *peer), mine.clone());
        }
        let mut had = self.with_each(&processes, |peer| self.swap(peer, number, mine));
        had.extend(threads.into_iter().map(|peer| {
            let region = inproc::take(meeting(peer, self.me), self.deadline);
            (peer, region.map(Some).ok_or_else(|| self.failed(peer, "it did not bring its memory in time")))
        }));
        let mut failures = Vec::new();
        for (peer, region) in had {
            match region {
                Ok(region) => all[peer] = region,
                Err(error) => failures.push(error),
            }
        }
        MeshError::of_several(failures).map_or(Ok(all), Err)
    }

    /// Hands this rank's memory to a neighbour and takes the neighbour's, if it can be mapped.
    fn swap(&self, peer: usize, number: u64, mine: &Region) -> Result<Option<Arc<Region>>, MeshError> {
        let purpose = Purpose::Memory(number);
        let call = match peer < self.me {
            true => self.call_locally(peer, purpose)?.ok_or_else(|| self.failed(peer, CLOSED))?,
            false => self.await_call(peer, purpose)?,
        };
        let handed = shm::hand_over(call.socket.as_fd(), mine);
        handed.map_err(|error| self.failed(peer, format!("handing over memory: {error}")))?;
        let taken = shm::take_over(call.socket.as_fd(), self.deadline);
        match taken.map_err(|error| self.failed(peer, format!("taking over memory: {error}")))? {
            Ok(region) => Ok(Some(Arc::new(region))),
            Err(error) => {
                tracing::info!("the memory of rank {peer} can't be reached: {error}");
                Ok(None)
            }
        }
    }
}
