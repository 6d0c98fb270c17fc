//! Joining all pairs of a group: each step is taken with all peers before the next, so that nobody waits in a circle.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use super::card::{Allowed, Card};
use super::error::MeshError;
use super::fabric::{Fabric, GroupId};
use super::listen::{Call, Hello, Purpose, unix_address};
use crate::clock::Clock;
use crate::control::{Control, Inbox, QueueControl, SocketControl};
use crate::doorbell::Doorbell;
use crate::endpoint::Endpoint;
use crate::inproc::{self, Meeting, Offer};
use crate::link::{Kind, Link};
use crate::machine;
use crate::ring::RingLink;
use crate::segment::{Geometry, Segment, SharedSegment};
use crate::shm::{self, Neighbour};
use crate::tcp::{TcpLink, connect::connect};

/// One rank's work of joining a group.
pub(super) struct Pairing<'a> {
    fabric: &'a Fabric,
    group: GroupId,
    members: &'a [usize],
    me: usize,
    deadline: Instant,
    start: Instant,
    bell: Doorbell,
    nonce: [u8; 16],
    /// Members on this rank's kernel, in order: a rank's place here is its place in every segment.
    house: Vec<usize>,
    segment: Option<SharedSegment>,
}

fn system(what: &'static str) -> impl Fn(std::io::Error) -> MeshError {
    move |error| MeshError::System { what, error }
}

impl<'a> Pairing<'a> {
    pub(super) fn new(
        fabric: &'a Fabric,
        group: GroupId,
        members: &'a [usize],
        me: usize,
        deadline: Instant,
    ) -> Result<Pairing<'a>, MeshError> {
        let cards = &fabric.cards;
        let mine = &cards[members[me]];
        let house: Vec<usize> = (0..members.len()).filter(|peer| cards[members[*peer]].shares_kernel(mine)).collect();
        let nonce = machine::random();
        let segment = if house.len() > 1 && (mine.allows(Allowed::Shm) || mine.allows(Allowed::Inproc)) {
            let geometry = Geometry::for_neighbours(house.len());
            Some(Arc::new(Segment::create(geometry, nonce).map_err(system("making the shared segment"))?))
        } else {
            None
        };
        let bell = Doorbell::new().map_err(system("making a doorbell"))?;
        Ok(Pairing { fabric, group, members, me, deadline, start: Instant::now(), bell, nonce, house, segment })
    }

    fn card(&self, peer: usize) -> &Card {
        &self.fabric.cards[self.members[peer]]
    }

    fn who(&self, peer: usize) -> String {
        format!("host {}, pid {}", self.card(peer).host, self.card(peer).pid)
    }

    fn failed(&self, peer: usize, problem: impl std::fmt::Display) -> MeshError {
        MeshError::Peer { peer, who: self.who(peer), problem: problem.to_string() }
    }

    fn place(&self, peer: usize) -> usize {
        self.house.iter().position(|member| *member == peer).expect("a neighbour lives in the house")
    }

    /// Joins every pair that this rank is in.
    pub(super) fn join(self) -> Result<Endpoint, MeshError> {
        let size = self.members.len();
        let mut links: Vec<Option<Link>> = (0..size).map(|_| None).collect();
        let others = || (0..size).filter(|peer| *peer != self.me);
        let is_inproc = |peer: &usize| self.card(self.me).shares_process(self.card(*peer));
        let inboxes: Vec<(usize, Inbox)> =
            others().filter(is_inproc).map(|peer| (peer, self.leave_offer(peer))).collect();
        let calls = self.open_control(&others().filter(|peer| !is_inproc(peer)).collect::<Vec<_>>())?;
        let neighbours = self.try_memory(&calls)?;
        for ((peer, call), neighbour) in calls.into_iter().zip(neighbours) {
            let control = SocketControl::new(call.socket).map_err(system("setting up a control path"))?;
            let kind = match neighbour {
                Some(neighbour) => Kind::Shm(self.ring(peer, neighbour)),
                None => Kind::Tcp(Box::new(self.open_streams(peer)?)),
            };
            links[peer] = Some(Link::new(kind, Control::Socket(control)));
        }
        for (peer, inbox) in inboxes {
            let (offer, control) = self.take_offer(peer, &inbox)?;
            let neighbour = Neighbour { segment: offer.segment, bell: offer.bell };
            links[peer] = Some(Link::new(Kind::Inproc(self.ring(peer, neighbour)), Control::Queue(control)));
        }
        let peers = self.fabric.peers(self.members);
        Ok(Endpoint::new(self.me, links, peers, self.segment, self.bell))
    }

    fn segment(&self) -> &SharedSegment {
        self.segment.as_ref().expect("a house of two has segments")
    }

    fn ring(&self, peer: usize, theirs: Neighbour) -> RingLink {
        let mine = (self.segment().clone(), self.place(self.me));
        RingLink::new(mine, (theirs.segment, self.place(peer)), theirs.bell)
    }

    fn meeting(&self, from: usize, to: usize) -> Meeting {
        Meeting { job: self.fabric.credentials.job, group: self.group.0, from, to }
    }

    fn leave_offer(&self, peer: usize) -> Inbox {
        let inbox = Inbox::default();
        let offer = Offer { segment: self.segment().clone(), bell: self.bell.clone(), inbox: inbox.clone() };
        inproc::leave(self.meeting(self.me, peer), offer);
        inbox
    }

    fn take_offer(&self, peer: usize, inbox: &Inbox) -> Result<(Offer, QueueControl), MeshError> {
        let Some(offer) = inproc::take(self.meeting(peer, self.me), self.deadline) else {
            inproc::take_back(self.meeting(self.me, peer));
            return Err(self.failed(peer, "a thread of this process has not come in time"));
        };
        let control = QueueControl::new(inbox, &offer.inbox, offer.bell.clone());
        Ok((offer, control))
    }

    fn hello(&self, from: usize, purpose: Purpose) -> Hello {
        Hello { group: self.group, from: from as u32, purpose }
    }

    /// A connection over which to talk with each peer: this rank calls those below it, and is called by those above.
    fn open_control(&self, peers: &[usize]) -> Result<Vec<(usize, Call)>, MeshError> {
        let mut calls = Vec::with_capacity(peers.len());
        for peer in peers.iter().copied().filter(|peer| *peer < self.me) {
            calls.push((peer, self.call(peer)?));
        }
        let mut missing = Vec::new();
        for peer in peers.iter().copied().filter(|peer| *peer > self.me) {
            match self.await_call(peer, Purpose::Control) {
                Some(call) => calls.push((peer, call)),
                None => missing.push((peer, self.who(peer))),
            }
        }
        if missing.is_empty() {
            return Ok(calls);
        }
        Err(MeshError::Missing { expected: peers.len(), missing, waited: self.start.elapsed() })
    }

    fn await_call(&self, peer: usize, purpose: Purpose) -> Option<Call> {
        self.fabric.switchboard.as_ref()?.wait_for(&self.hello(peer, purpose), self.deadline)
    }

    fn may_share_memory(&self, peer: usize) -> bool {
        let (mine, theirs) = (self.card(self.me), self.card(peer));
        mine.shares_kernel(theirs) && mine.allows(Allowed::Shm) && theirs.allows(Allowed::Shm)
    }

    fn call(&self, peer: usize) -> Result<Call, MeshError> {
        if self.may_share_memory(peer)
            && let Some(name) = &self.card(peer).unix
        {
            match unix_address(name).and_then(|address| UnixStream::connect_addr(&address)) {
                Ok(socket) => {
                    self.prove(peer, socket.as_fd(), Purpose::Control)?;
                    return Ok(Call { socket: socket.into(), local: true });
                }
                Err(error) => tracing::debug!("rank {peer} shares the kernel but can't be called locally: {error}"),
            }
        }
        let socket = self.call_tcp(peer, Purpose::Control)?;
        Ok(Call { socket, local: false })
    }

    fn call_tcp(&self, peer: usize, purpose: Purpose) -> Result<OwnedFd, MeshError> {
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

    fn prove(&self, peer: usize, socket: std::os::fd::BorrowedFd<'_>, purpose: Purpose) -> Result<(), MeshError> {
        let hello = postcard::to_allocvec(&self.hello(self.me, purpose)).expect("plain data");
        let proven = self.fabric.credentials.prove_as_connector(socket, self.deadline, &hello);
        proven.map_err(|error| self.failed(peer, error))
    }

    /// Tries shared memory with everyone on the line locally: all offer, all look, all hear what the other saw.
    fn try_memory(&self, calls: &[(usize, Call)]) -> Result<Vec<Option<Neighbour>>, MeshError> {
        let local = |call: &Call| call.local;
        for (peer, call) in calls.iter().filter(|(_, call)| local(call)) {
            let offered = shm::offer(call.socket.as_fd(), self.segment(), self.nonce, &self.bell);
            offered.map_err(|error| self.failed(*peer, format!("offering shared memory: {error}")))?;
        }
        let mut found = Vec::with_capacity(calls.len());
        for (peer, call) in calls {
            if !local(call) {
                found.push(None);
                continue;
            }
            let seen = shm::accept(call.socket.as_fd(), self.deadline);
            let seen = seen.map_err(|error| self.failed(*peer, format!("its offer of shared memory: {error}")))?;
            if let Err(error) = &seen {
                tracing::info!("the shared memory of rank {peer} can't be used, tcp is: {error}");
            }
            let told = shm::tell_verdict(call.socket.as_fd(), seen.is_ok());
            told.map_err(|error| self.failed(*peer, error))?;
            found.push(seen.ok());
        }
        for ((peer, call), neighbour) in calls.iter().zip(&mut found) {
            if local(call) {
                let opened = shm::hear_verdict(call.socket.as_fd(), self.deadline);
                if !opened.map_err(|error| self.failed(*peer, format!("its verdict: {error}")))? {
                    *neighbour = None;
                }
            }
        }
        Ok(found)
    }

    /// The data streams of a tcp link: as many as both want, but one at least.
    fn open_streams(&self, peer: usize) -> Result<TcpLink, MeshError> {
        let n_streams = self.card(self.me).streams.min(self.card(peer).streams).max(1);
        let mut streams = Vec::new();
        for number in 0..n_streams {
            let purpose = Purpose::Stream(number);
            let socket = if peer < self.me {
                self.call_tcp(peer, purpose)?
            } else {
                let call = self.await_call(peer, purpose);
                call.ok_or_else(|| self.failed(peer, "it did not open its data streams in time"))?.socket
            };
            streams.push(socket.into());
        }
        TcpLink::new(streams).map_err(|error| self.failed(peer, error))
    }
}
