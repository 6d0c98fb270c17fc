//! Calling the other ranks of a group and being called by them: the upper rank of a pair calls the lower.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::card::{Allowed, Card};
use super::error::MeshError;
use super::fabric::{Fabric, GroupId};
use super::listen::{Call, Hello, Purpose, unix_address};
use crate::clock::Clock;
use crate::inproc::Meeting;
use crate::tcp::connect::connect;

/// One rank's calls within a group.
#[derive(Clone, Copy)]
pub(super) struct Calls<'a> {
    pub(super) fabric: &'a Fabric,
    pub(super) group: GroupId,
    /// Each rank's number in the world.
    pub(super) members: &'a [usize],
    pub(super) me: usize,
    pub(super) deadline: Instant,
}

impl Calls<'_> {
    /// Every rank but this one.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let me = self.me;
        (0..self.members.len()).filter(move |peer| *peer != me)
    }

    pub(super) fn card(&self, peer: usize) -> &Card {
        &self.fabric.cards[self.members[peer]]
    }

    pub(super) fn who(&self, peer: usize) -> String {
        format!("host {}, pid {}", self.card(peer).host, self.card(peer).pid)
    }

    pub(super) fn failed(&self, peer: usize, problem: impl std::fmt::Display) -> MeshError {
        MeshError::Peer { peer, who: self.who(peer), problem: problem.to_string() }
    }

    /// Whether the two are threads of one process and may use that.
    pub(super) fn shares_process(&self, peer: usize) -> bool {
        self.card(self.me).shares_process(self.card(peer))
    }

    pub(super) fn meeting(&self, from: usize, to: usize) -> Meeting {
        Meeting { job: self.fabric.credentials.job, group: self.group.0, from, to, number: 0 }
    }

    pub(super) fn hello(&self, from: usize, purpose: Purpose) -> Hello {
        Hello { group: self.group, from: from as u32, purpose }
    }

    pub(super) fn await_call(&self, peer: usize, purpose: Purpose) -> Option<Call> {
        self.fabric.switchboard.as_ref()?.wait_for(&self.hello(peer, purpose), self.deadline)
    }

    pub(super) fn may_share_memory(&self, peer: usize) -> bool {
        let (mine, theirs) = (self.card(self.me), self.card(peer));
        mine.shares_kernel(theirs) && mine.allows(Allowed::Shm) && theirs.allows(Allowed::Shm)
    }

    /// A call over the peer's Unix socket; `None` if it has none that can be reached from here.
    pub(super) fn call_locally(&self, peer: usize, purpose: Purpose) -> Result<Option<Call>, MeshError> {
        let Some(name) = self.card(peer).unix.as_ref().filter(|_| self.may_share_memory(peer)) else { return Ok(None) };
        match unix_address(name).and_then(|address| UnixStream::connect_addr(&address)) {
            Ok(socket) => {
                self.prove(peer, socket.as_fd(), purpose)?;
                Ok(Some(Call { socket: socket.into(), local: true }))
            }
            Err(error) => {
                tracing::debug!("rank {peer} shares the kernel but can't be called locally: {error}");
                Ok(None)
            }
        }
    }

    /// A control path to a lower rank: local if it can be, by TCP otherwise.
    pub(super) fn call(&self, peer: usize) -> Result<Call, MeshError> {
        if let Some(call) = self.call_locally(peer, Purpose::Control)? {
            return Ok(call);
        }
        let socket = self.call_tcp(peer, Purpose::Control)?;
        Ok(Call { socket, local: false })
    }

    pub(super) fn call_tcp(&self, peer: usize, purpose: Purpose) -> Result<OwnedFd, MeshError> {
        let addresses = &self.card(peer).tcp;
        if addresses.is_empty() || !self.card(self.me).allows(Allowed::Tcp) {
            return Err(
                self.failed(peer, "no allowed kind of link joins the two; look at PACELINE_LINKS on both sides")
            );
        }
        let deadline = Clock::Real.now().after(self.deadline.saturating_duration_since(Instant::now()));
        let (socket, address) = connect(addresses, deadline, || false).map_err(|error| self.failed(peer, error))?;
        tracing::debug!("reached rank {peer} at {address}");
        self.prove(peer, socket.as_fd(), purpose)?;
        Ok(socket.into())
    }

    pub(super) fn prove(
        &self,
        peer: usize,
        socket: std::os::fd::BorrowedFd<'_>,
        purpose: Purpose,
    ) -> Result<(), MeshError> {
        let hello = postcard::to_allocvec(&self.hello(self.me, purpose)).expect("plain data");
        let proven = self.fabric.credentials.prove_as_connector(socket, self.deadline, &hello);
        proven.map_err(|error| self.failed(peer, error))
    }
}
