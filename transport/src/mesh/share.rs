//! Memory that all ranks of a group bring, and that those on one host map from each other.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use super::calls::{CLOSED, Calls};
use super::error::MeshError;
use super::fabric::{Fabric, GroupId};
use super::line::{self, Content, Line, Parcel};
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

/// A neighbour's memory, if it can be reached.
type Swapped = Result<Option<Arc<Region>>, MeshError>;

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
        let lines = self.lines(&processes);
        let mut had = self.swap_over_lines(&lines, number, mine);
        let called: Vec<usize> = processes.into_iter().filter(|peer| self.line(*peer).is_none()).collect();
        had.extend(self.with_each(&called, |peer| self.swap(peer, number, mine)));
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

    /// The same with the neighbours to which there are lines, all together.
    fn swap_over_lines(&self, lines: &[(usize, Arc<Line>)], number: u64, mine: &Region) -> Vec<(usize, Swapped)> {
        let (began, label) = (Instant::now(), self.label(number));
        let (mut had, mut handed): (Vec<(usize, Swapped)>, Vec<_>) = (Vec::new(), Vec::new());
        for (peer, line) in lines {
            match line.send(label, &Content::Memory(mine.bytes() as u64), &[mine.file()], self.deadline) {
                Ok(()) => handed.push((*peer, line.clone())),
                Err(silence) => had.push((*peer, Err(self.silent(*peer, silence, began)))),
            }
        }
        had.extend(line::take_each(&handed, label, self.deadline, |peer, _, parcel| {
            let Parcel { content, mut files } = parcel.map_err(|silence| self.silent(peer, silence, began))?;
            let Content::Memory(bytes) = content else {
                return Err(self.failed(peer, format!("it handed over {content:?}, not memory")));
            };
            let file = files.pop().ok_or_else(|| std::io::Error::other("no memory came with the offer"));
            let file = self.files_from(peer, file)?;
            Ok(self.reached(peer, Region::attach(file, bytes as usize)))
        }));
        had
    }

    fn reached(&self, peer: usize, region: std::io::Result<Region>) -> Option<Arc<Region>> {
        let unreached = |error: &std::io::Error| tracing::info!("the memory of rank {peer} can't be reached: {error}");
        region.inspect_err(unreached).ok().map(Arc::new)
    }

    /// Hands this rank's memory to a neighbour and takes the neighbour's, if it can be mapped.
    fn swap(&self, peer: usize, number: u64, mine: &Region) -> Swapped {
        let purpose = Purpose::Memory(number);
        let call = match peer < self.me {
            true => self.call_locally(peer, purpose)?.ok_or_else(|| self.failed(peer, CLOSED))?,
            false => self.await_call(peer, purpose)?,
        };
        let handed = shm::hand_over(call.socket.as_fd(), mine);
        handed.map_err(|error| self.failed(peer, format!("handing over memory: {error}")))?;
        let taken = shm::take_over(call.socket.as_fd(), self.deadline);
        let taken = taken.map_err(|error| self.failed(peer, format!("taking over memory: {error}")))?;
        Ok(self.reached(peer, taken))
    }
}
