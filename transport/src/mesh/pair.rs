//! Joining all pairs of a group: each step is taken with all peers before the next, so that nobody waits in a circle.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use super::calls::Calls;
use super::card::Allowed;
use super::error::MeshError;
use super::listen::{Call, Purpose};
use crate::control::{Control, Inbox, QueueControl, SocketControl};
use crate::doorbell::Doorbell;
use crate::endpoint::Endpoint;
use crate::inproc::{self, Offer};
use crate::link::{Kind, Link};
use crate::machine;
use crate::ring::RingLink;
use crate::segment::{Geometry, Segment, SharedSegment};
use crate::shm::{self, Neighbour};
use crate::tcp::TcpLink;

/// One rank's work of joining a group.
pub(super) struct Pairing<'a> {
    calls: Calls<'a>,
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
    pub(super) fn new(calls: Calls<'a>) -> Result<Pairing<'a>, MeshError> {
        let mine = calls.card(calls.me);
        let house: Vec<usize> = (0..calls.members.len()).filter(|peer| calls.card(*peer).shares_kernel(mine)).collect();
        let nonce = machine::random();
        let segment = if house.len() > 1 && (mine.allows(Allowed::Shm) || mine.allows(Allowed::Inproc)) {
            let geometry = Geometry::for_neighbours(house.len());
            Some(Arc::new(Segment::create(geometry, nonce).map_err(system("making the shared segment"))?))
        } else {
            None
        };
        let bell = Doorbell::new().map_err(system("making a doorbell"))?;
        Ok(Pairing { calls, start: Instant::now(), bell, nonce, house, segment })
    }

    fn place(&self, peer: usize) -> usize {
        self.house.iter().position(|member| *member == peer).expect("a neighbour lives in the house")
    }

    /// Joins every pair that this rank is in.
    pub(super) fn join(self) -> Result<Endpoint, MeshError> {
        let size = self.calls.members.len();
        let mut links: Vec<Option<Link>> = (0..size).map(|_| None).collect();
        let is_inproc = |peer: &usize| self.calls.shares_process(*peer);
        let others = || self.calls.others();
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
        let peers = self.calls.fabric.peers(self.calls.members);
        Ok(Endpoint::new(self.calls.me, links, peers, self.segment, self.bell))
    }

    fn segment(&self) -> &SharedSegment {
        self.segment.as_ref().expect("a house of two has segments")
    }

    fn ring(&self, peer: usize, theirs: Neighbour) -> RingLink {
        let mine = (self.segment().clone(), self.place(self.calls.me));
        RingLink::new(mine, (theirs.segment, self.place(peer)), theirs.bell)
    }

    fn leave_offer(&self, peer: usize) -> Inbox {
        let inbox = Inbox::default();
        let offer = Offer { segment: self.segment().clone(), bell: self.bell.clone(), inbox: inbox.clone() };
        inproc::leave(self.calls.meeting(self.calls.me, peer), offer);
        inbox
    }

    fn take_offer(&self, peer: usize, inbox: &Inbox) -> Result<(Offer, QueueControl), MeshError> {
        let Some(offer) = inproc::take::<Offer>(self.calls.meeting(peer, self.calls.me), self.calls.deadline) else {
            inproc::take_back(self.calls.meeting(self.calls.me, peer));
            return Err(self.calls.failed(peer, "a thread of this process has not come in time"));
        };
        let control = QueueControl::new(inbox, &offer.inbox, offer.bell.clone());
        Ok((offer, control))
    }

    /// A connection over which to talk with each peer: this rank calls those below it, and is called by those above.
    fn open_control(&self, peers: &[usize]) -> Result<Vec<(usize, Call)>, MeshError> {
        let mut calls = Vec::with_capacity(peers.len());
        for peer in peers.iter().copied().filter(|peer| *peer < self.calls.me) {
            calls.push((peer, self.calls.call(peer)?));
        }
        let mut missing = Vec::new();
        for peer in peers.iter().copied().filter(|peer| *peer > self.calls.me) {
            match self.calls.await_call(peer, Purpose::Control) {
                Some(call) => calls.push((peer, call)),
                None => missing.push((peer, self.calls.who(peer))),
            }
        }
        if missing.is_empty() {
            return Ok(calls);
        }
        Err(MeshError::Missing { expected: peers.len(), missing, waited: self.start.elapsed() })
    }

    /// Tries shared memory with everyone on the line locally: all offer, all look, all hear what the other saw.
    fn try_memory(&self, calls: &[(usize, Call)]) -> Result<Vec<Option<Neighbour>>, MeshError> {
        let local = |call: &Call| call.local;
        for (peer, call) in calls.iter().filter(|(_, call)| local(call)) {
            let offered = shm::offer(call.socket.as_fd(), self.segment(), self.nonce, &self.bell);
            offered.map_err(|error| self.calls.failed(*peer, format!("offering shared memory: {error}")))?;
        }
        let mut found = Vec::with_capacity(calls.len());
        for (peer, call) in calls {
            if !local(call) {
                found.push(None);
                continue;
            }
            let seen = shm::accept(call.socket.as_fd(), self.calls.deadline);
            let seen =
                seen.map_err(|error| self.calls.failed(*peer, format!("its offer of shared memory: {error}")))?;
            if let Err(error) = &seen {
                tracing::info!("the shared memory of rank {peer} can't be used, tcp is: {error}");
            }
            let told = shm::tell_verdict(call.socket.as_fd(), seen.is_ok());
            told.map_err(|error| self.calls.failed(*peer, error))?;
            found.push(seen.ok());
        }
        for ((peer, call), neighbour) in calls.iter().zip(&mut found) {
            if local(call) {
                let opened = shm::hear_verdict(call.socket.as_fd(), self.calls.deadline);
                if !opened.map_err(|error| self.calls.failed(*peer, format!("its verdict: {error}")))? {
                    *neighbour = None;
                }
            }
        }
        Ok(found)
    }

    /// The data streams of a tcp link: as many as both want, but one at least.
    fn open_streams(&self, peer: usize) -> Result<TcpLink, MeshError> {
        let n_streams = self.calls.card(self.calls.me).streams.min(self.calls.card(peer).streams).max(1);
        let mut streams = Vec::new();
        for number in 0..n_streams {
            let purpose = Purpose::Stream(number);
            let socket = if peer < self.calls.me {
                self.calls.call_tcp(peer, purpose)?
            } else {
                let call = self.calls.await_call(peer, purpose);
                call.ok_or_else(|| self.calls.failed(peer, "it did not open its data streams in time"))?.socket
            };
            streams.push(socket.into());
        }
        TcpLink::new(streams).map_err(|error| self.calls.failed(peer, error))
    }
}
