//! Memory that the ranks lend each other, so that calls read it where it lies instead of copying it first.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use paceline_transport::cuda::{Device, DeviceMemory, PeerFacts, PeerMemory};

use super::buffer::DeviceVec;
use super::{DeviceCommunicator, refused};
use crate::device::LentPlan;
use crate::error::{Error, Result};
use crate::reduce::Element;

/// One piece of memory of every rank, as this rank reaches them.
pub(super) struct Window {
    /// This rank's own, which is not freed as long as others may read it.
    pub(super) own: Arc<DeviceMemory>,
    pub(super) peers: Vec<PeerMemory>,
}

/// What a rank has lent, and where it reaches what the others have. The same numbers on all ranks.
#[derive(Default)]
pub(super) struct Windows {
    windows: Vec<Option<Window>>,
    /// The same as launches take it.
    pub(super) places: Vec<Option<(Vec<u64>, u64)>>,
}

impl Windows {
    pub(super) fn is_empty(&self) -> bool {
        self.places.iter().all(Option::is_none)
    }

    /// The lowest number that is free.
    fn free(&self) -> Option<usize> {
        let free = self.places.iter().position(Option::is_none).unwrap_or(self.places.len());
        (free < LentPlan::WINDOWS_MAX).then_some(free)
    }

    fn put(&mut self, number: usize, window: Window, addresses: Vec<u64>) {
        let len = self.places.len().max(number + 1);
        self.windows.resize_with(len, || None);
        self.places.resize_with(len, || None);
        self.places[number] = Some((addresses, window.own.bytes() as u64));
        self.windows[number] = Some(window);
    }

    fn take(&mut self, number: usize) -> Option<Window> {
        self.places[number] = None;
        self.windows[number].take()
    }

    /// Gives up what the other ranks have lent. Returns this rank's own.
    pub(super) fn part(&mut self) -> Vec<Arc<DeviceMemory>> {
        self.places.clear();
        self.windows.drain(..).flatten().map(|window| window.own).collect()
    }

    /// This rank's own that other processes have mapped.
    pub(super) fn mapped(&self) -> impl Iterator<Item = &Arc<DeviceMemory>> {
        let is_mapped = |window: &&Window| window.peers.iter().any(|peer| !peer.is_same_process());
        self.windows.iter().flatten().filter(is_mapped).map(|window| &window.own)
    }
}

/// Vectors that the ranks have registered together: see [`DeviceCommunicator::register`].
#[derive(Debug)]
#[must_use = "it is given back by DeviceCommunicator::deregister; otherwise it stays until the communicator is gone"]
pub struct Registered(Option<usize>);

impl Registered {
    /// Whether calls read the vectors where they lie: the same on all ranks. If not, registering has changed nothing.
    #[must_use]
    pub fn is_lent(&self) -> bool {
        self.0.is_some()
    }
}

impl DeviceCommunicator {
    /// Registers a vector of each rank. Every rank calls it, with one of its own, of whatever length, which no stream uses
    /// meanwhile. Calls of 64 KiB and more (all_reduce, reduce_scatter, all_gather and all_to_all with blocks of one length)
    /// then read the other ranks' vectors where they lie, if the buffers of all ranks lie in registered vectors; which ones and
    /// where is each rank's own affair; but calls that are left to copy engines
    /// ([`AttachOptions::copy_engines`](super::AttachOptions::copy_engines)) have it at the same place of the same vectors on all
    /// ranks, or on none.
    ///
    /// The memory is kept when the vector is dropped, until [`DeviceCommunicator::deregister`], or until the communicator is
    /// gone: no other memory can come to lie where others still read this. Graphs that have captured calls between the two must
    /// not be launched after that.
    ///
    /// Where calls pass by the host, or some rank can't reach the vector of another, nothing is registered, and a line in the log
    /// says why.
    ///
    /// # Errors
    ///
    /// Sixteen are registered already; or as any call.
    pub fn register<T: Element>(&self, vector: &DeviceVec<T>) -> Result<Registered> {
        let Some(watch) = &self.attached.watch else { return Ok(Registered(None)) };
        let device = self.own_device()?;
        let mut windows = watch.direct.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let number = windows.free().ok_or_else(|| {
            Error::invalid(format!("{} vectors are registered already", LentPlan::WINDOWS_MAX))
                .hint("deregister some, or register one large vector and use parts of it")
        })?;
        let mut kept = [0; PeerFacts::RESERVED];
        let told = self.tell_of(vector.memory(), &mut kept);
        let said = self.comm.tell_all(&postcard::to_allocvec(&told).expect("plain data"))?;
        let reached: std::result::Result<Vec<_>, String> =
            said.iter().enumerate().map(|(rank, said)| self.reach_vector(device, rank, said)).collect();
        let reason = self.comm.first_reason(reached.as_ref().err())?;
        // All have read the number that proves it; what lay there comes back.
        if let (Some(memory), Ok(_)) = (vector.memory(), &told) {
            memory.write(0, &kept).map_err(refused)?;
        }
        if let Some(reason) = reason {
            tracing::info!("registered vectors are not read where they lie: {reason}");
            return Ok(Registered(None));
        }
        let own = vector.memory().expect("it was told of").clone();
        let peers = reached.expect("looked at above");
        let addresses = peers.iter().map(|peer| peer.as_ref().map_or(own.address(), PeerMemory::address)).collect();
        windows.put(number, Window { own, peers: peers.into_iter().flatten().collect() }, addresses);
        Ok(Registered(Some(number)))
    }

    /// Gives back vectors that were registered. Every rank calls it. Waits until this rank's streams have done their calls.
    ///
    /// # Errors
    ///
    /// A stream doesn't get to its calls within the timeout; or as any call.
    pub fn deregister(&self, registered: Registered) -> Result<()> {
        let (Some(watch), Some(number)) = (&self.attached.watch, registered.0) else { return Ok(()) };
        let deadline = Instant::now() + self.timeout();
        self.attached.last.lock().unwrap_or_else(PoisonError::into_inner).wait(deadline)?;
        let mut windows = watch.direct.windows.lock().unwrap_or_else(PoisonError::into_inner);
        // When all have come here, no launch reads it; when all have come to the second, nobody has mapped it.
        self.comm.barrier()?;
        let window = windows.take(number);
        let own = window.map(|window| window.own);
        self.comm.barrier().inspect_err(|_| std::mem::forget(own.clone()))
    }

    /// What the others are told of a vector; what lies where it begins goes to `kept`.
    fn tell_of(&self, memory: Option<&Arc<DeviceMemory>>, kept: &mut [u8]) -> std::result::Result<Vec<u8>, String> {
        let memory = memory.filter(|memory| memory.bytes() >= PeerFacts::RESERVED).ok_or_else(|| {
            format!("the vector of rank {} has less than {} bytes", self.comm.rank(), PeerFacts::RESERVED)
        })?;
        memory.read(0, kept).map_err(|error| error.to_string())?;
        let facts = PeerFacts::of(memory, &self.comm.host()).map_err(|error| error.to_string())?;
        Ok(facts.encode())
    }

    fn reach_vector(
        &self,
        device: &Device,
        rank: usize,
        said: &[u8],
    ) -> std::result::Result<Option<PeerMemory>, String> {
        let told: std::result::Result<Vec<u8>, String> =
            postcard::from_bytes(said).map_err(|error| format!("what rank {rank} tells can't be read: {error}"))?;
        let facts = PeerFacts::decode(&told?).map_err(|error| error.to_string())?;
        if rank == self.comm.rank() {
            return Ok(None);
        }
        let peer = PeerMemory::reach(device, &self.comm.host(), &facts);
        peer.map(Some).map_err(|error| format!("rank {} doesn't reach rank {rank}: {error}", self.comm.rank()))
    }
}
