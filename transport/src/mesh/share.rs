//! Memory that all ranks of a group bring, and that those on one host map from each other.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use super::calls::Calls;
use super::error::MeshError;
use super::fabric::{Fabric, GroupId};
use super::listen::Purpose;
use crate::inproc::{self, Meeting};
use crate::memory::Region;
use crate::shm;

/// One rank's memory, and that of the ranks whose memory it can reach.
#[derive(Debug)]
pub struct SharedMemory {
    /// This rank's own.
    pub mine: Arc<Region>,
    /// Each rank's, where it can be reached directly; this rank's own among them.
    pub all: Vec<Option<Arc<Region>>>,
}

impl Fabric {
    /// Makes `bytes` of memory on every rank of a group, and maps that of the ranks on this host. All of them call it, with
    /// the same `number`, which no other memory of the group has; `members` as in [`Fabric::connect`].
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
        deadline: Instant,
    ) -> Result<SharedMemory, MeshError> {
        assert!(number > 0, "number 0 is taken by the joining itself");
        let me = members.iter().position(|rank| *rank == self.rank).expect("a rank shares with groups that it is in");
        let made = Region::create(bytes);
        let mine = Arc::new(made.map_err(|error| MeshError::System { what: "making memory to share", error })?);
        let all = Calls { fabric: self, group, members, me, deadline }.exchange(number, &mine)?;
        Ok(SharedMemory { mine, all })
    }
}

impl Calls<'_> {
    fn exchange(&self, number: u64, mine: &Arc<Region>) -> Result<Vec<Option<Arc<Region>>>, MeshError> {
        let is_inproc = |peer: &usize| self.shares_process(*peer);
        let mut all: Vec<Option<Arc<Region>>> = vec![None; self.members.len()];
        all[self.me] = Some(mine.clone());
        let meeting = |from, to| Meeting { number, ..self.meeting(from, to) };
        for peer in self.others().filter(is_inproc) {
            inproc::leave(meeting(self.me, peer), mine.clone());
        }
        let mut calls = Vec::new();
        for peer in self.others().filter(|peer| !is_inproc(peer) && self.may_share_memory(*peer)) {
            let call = if peer < self.me { self.call_locally(peer, Purpose::Memory(number))? } else { None };
            calls.push((peer, call));
        }
        for (peer, call) in &mut calls {
            if *peer > self.me {
                *call = self.await_call(*peer, Purpose::Memory(number));
            }
            let Some(call) = call else { continue };
            let handed = shm::hand_over(call.socket.as_fd(), mine);
            handed.map_err(|error| self.failed(*peer, format!("handing over memory: {error}")))?;
        }
        for (peer, call) in &calls {
            let Some(call) = call else { continue };
            let taken = shm::take_over(call.socket.as_fd(), self.deadline);
            match taken.map_err(|error| self.failed(*peer, format!("taking over memory: {error}")))? {
                Ok(region) => all[*peer] = Some(Arc::new(region)),
                Err(error) => tracing::info!("the memory of rank {peer} can't be reached: {error}"),
            }
        }
        for peer in self.others().filter(is_inproc) {
            let region = inproc::take(meeting(peer, self.me), self.deadline);
            all[peer] = Some(region.ok_or_else(|| self.failed(peer, "it did not bring its memory in time"))?);
        }
        Ok(all)
    }
}
