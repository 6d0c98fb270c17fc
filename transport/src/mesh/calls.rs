//! Calling the other ranks of a group and being called by them: the upper rank of a pair calls the lower.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::card::{Allowed, Card};
use super::door;
use super::error::MeshError;
use super::fabric::{Fabric, GroupId};
use super::line::{Label, Line, Silence};
use super::listen::{Call, Hello, Purpose, Switchboard};
use crate::inproc::Meeting;
use crate::machine;
use crate::rendezvous::HandshakeError;

/// How long a rank waits for a call before it looks whether the caller is still there: at first, and at most.
const KNOCK_AFTER: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(500));
/// What to say when the other end of a connection is closed.
pub(super) const CLOSED: &str = "it closed the connection: its process is gone, or gave up; look at its output";
/// What to say of two ranks that allow no kind of link in common.
pub(super) const NO_KIND: &str = "no allowed kind of link joins the two; look at PACELINE_LINKS on both sides";
const GONE: &str = "its process is gone, or gave up: nothing listens at its sockets any more; look at its output";
const GONE_OR_APART: &str = "nothing listens at its local socket: its process is gone, or it is in another network \
                             namespace, and tcp is not allowed; look at its output, or at PACELINE_LINKS";

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

    /// The line to the peer, if there is one: then there is one at the peer, too.
    pub(super) fn line(&self, peer: usize) -> Option<Arc<Line>> {
        self.fabric.lines.to(self.members[peer])
    }

    /// What goes over lines for memory `number` of the group, or for the joining (0).
    pub(super) fn label(&self, number: u64) -> Label {
        Label { group: self.group, number }
    }

    /// Why nothing came from a peer over its line.
    pub(super) fn silent(&self, peer: usize, silence: Silence, began: Instant) -> MeshError {
        match silence {
            Silence::Closed => self.failed(peer, CLOSED),
            Silence::Late => MeshError::Missing { missing: vec![(peer, self.who(peer))], waited: began.elapsed() },
            Silence::Io(error) => {
                self.failed(peer, format!("handing over files: {error}{}", machine::files_hint(&error)))
            }
        }
    }

    /// How many TCP connections a link to the peer has: as many as both want, but one at least.
    pub(super) fn n_streams(&self, peer: usize) -> usize {
        self.card(self.me).streams.min(self.card(peer).streams).max(1) as usize
    }

    /// How many calls have come that nobody has asked for yet.
    pub(super) fn waiting(&self) -> usize {
        self.fabric.switchboard.as_ref().map_or(0, Switchboard::waiting)
    }

    /// Does something with each peer, all at the same time: who is slow, stopped or gone holds up nobody else, so that at
    /// the deadline each rank misses only those that are to blame. The results come in the order in which they were had.
    pub(super) fn with_each<T: Send>(
        &self,
        peers: &[usize],
        work: impl Fn(usize) -> Result<T, MeshError> + Sync,
    ) -> Vec<(usize, Result<T, MeshError>)> {
        if let [peer] = *peers {
            return vec![(peer, work(peer))];
        }
        let (sender, results) = std::sync::mpsc::channel();
        let (work, sender) = (&work, &sender);
        std::thread::scope(|scope| {
            for peer in peers.iter().copied() {
                let thread = std::thread::Builder::new().name("paceline-join".into());
                let started = thread.spawn_scoped(scope, move || sender.send((peer, work(peer))));
                if let Err(error) = started {
                    let what = "starting a thread to join a rank with";
                    // The receiver lives as long as this function.
                    let _ = sender.send((peer, Err(MeshError::System { what, error })));
                }
            }
        });
        results.try_iter().collect()
    }

    /// A call of an upper rank, which must come by the deadline as long as that rank lives.
    pub(super) fn await_call(&self, peer: usize, purpose: Purpose) -> Result<Call, MeshError> {
        let began = Instant::now();
        let missing = || MeshError::Missing { missing: vec![(peer, self.who(peer))], waited: began.elapsed() };
        let switchboard = self.fabric.switchboard.as_ref().ok_or_else(missing)?;
        let hello = self.hello(peer, purpose);
        let mut patience = KNOCK_AFTER.0;
        loop {
            if let Some(call) = switchboard.wait_for(&hello, self.deadline.min(Instant::now() + patience)) {
                return Ok(call);
            }
            if self.deadline <= Instant::now() {
                return Err(missing());
            }
            if self.is_gone(peer) {
                // It may have gone right after it called.
                let call = switchboard.wait_for(&hello, self.deadline.min(Instant::now() + KNOCK_AFTER.0));
                return call.ok_or_else(|| self.failed(peer, GONE));
            }
            patience = (patience * 2).min(KNOCK_AFTER.1);
        }
    }

    pub(super) fn may_share_memory(&self, peer: usize) -> bool {
        let (mine, theirs) = (self.card(self.me), self.card(peer));
        mine.shares_kernel(theirs) && mine.allows(Allowed::Shm) && theirs.allows(Allowed::Shm)
    }

    /// A call over the peer's Unix socket; `None` if it has none that can be reached from here.
    pub(super) fn call_locally(&self, peer: usize, purpose: Purpose) -> Result<Option<Call>, MeshError> {
        let Some(name) = self.local_door(peer) else { return Ok(None) };
        match door::open_local(name, self.deadline) {
            Ok(socket) => {
                self.prove(peer, socket.as_fd(), purpose)?;
                Ok(Some(Call { socket, local: true }))
            }
            Err(error) => {
                tracing::debug!("rank {peer} shares the kernel but can't be called locally: {error}");
                Ok(None)
            }
        }
    }

    fn local_door(&self, peer: usize) -> Option<&[u8]> {
        self.card(peer).unix.as_deref().filter(|_| self.may_share_memory(peer))
    }

    /// The addresses at which the peer can be called by TCP, if both sides allow it.
    fn tcp_doors(&self, peer: usize) -> &[SocketAddr] {
        if self.card(self.me).can_be_called() { &self.card(peer).tcp } else { &[] }
    }

    /// A control path to a lower rank: local if it can be, by TCP otherwise.
    pub(super) fn call(&self, peer: usize) -> Result<Call, MeshError> {
        if let Some(call) = self.call_locally(peer, Purpose::Control)? {
            return Ok(call);
        }
        if self.tcp_doors(peer).is_empty() && self.local_door(peer).is_some() {
            return Err(self.failed(peer, GONE_OR_APART));
        }
        let socket = self.call_tcp(peer, Purpose::Control)?;
        Ok(Call { socket, local: false })
    }

    pub(super) fn call_tcp(&self, peer: usize, purpose: Purpose) -> Result<OwnedFd, MeshError> {
        let doors = self.tcp_doors(peer);
        if doors.is_empty() {
            return Err(self.failed(peer, NO_KIND));
        }
        let opened = door::open_tcp(doors, self.deadline);
        let (socket, address) = opened.map_err(|error| self.failed(peer, error))?;
        tracing::debug!("reached rank {peer} at {address}");
        self.prove(peer, socket.as_fd(), purpose)?;
        Ok(socket)
    }

    /// Whether nothing listens any more at any of the peer's doors. It listened before its card was read, and does so
    /// until it drops what it has joined; so it is gone, or has given up.
    fn is_gone(&self, peer: usize) -> bool {
        let (local, tcp) = (self.local_door(peer), self.tcp_doors(peer));
        let shut = |name| door::is_local_shut(name);
        (local.is_some() || !tcp.is_empty()) && local.is_none_or(shut) && (tcp.is_empty() || door::is_tcp_shut(tcp))
    }

    pub(super) fn prove(
        &self,
        peer: usize,
        socket: std::os::fd::BorrowedFd<'_>,
        purpose: Purpose,
    ) -> Result<(), MeshError> {
        let hello = postcard::to_allocvec(&self.hello(self.me, purpose)).expect("plain data");
        let proven = self.fabric.credentials.prove_as_connector(socket, self.deadline, &hello);
        proven.map_err(|error| match error {
            HandshakeError::Deadline => self.failed(peer, "no answer in time: its process is stopped, or very busy"),
            HandshakeError::Closed => self.failed(peer, CLOSED),
            other => self.failed(peer, other),
        })
    }
}
