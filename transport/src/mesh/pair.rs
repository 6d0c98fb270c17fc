//! Joining all pairs of a group, each by itself.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use super::calls::{CLOSED, Calls, NO_KIND};
use super::card::Allowed;
use super::error::MeshError;
use super::fabric::{Fabric, GroupId};
use super::line::{self, Line};
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
    pub(super) calls: Calls<'a>,
    pub(super) bell: Doorbell,
    nonce: [u8; 16],
    /// Members on this rank's kernel, in order: a rank's place here is its place in every segment.
    house: Vec<usize>,
    segment: Option<SharedSegment>,
}

pub(super) fn system(what: &'static str) -> impl Fn(std::io::Error) -> MeshError {
    move |error| MeshError::System { what, error }
}

/// Files of a rank apart from those for each peer: its segment, its doorbell, and what it sleeps on.
const OWN_FILES: usize = 3;
/// Files for a peer that is reached by shared memory: its segment, its doorbell, its process, and a line to it.
const MEMORY_FILES: usize = 4;
/// Files for a peer to which there is a line: its segment and its doorbell.
const LINED_FILES: usize = 2;

/// Files for a peer that is reached by a device: what completions wake the sleeper by.
fn device_files() -> usize {
    if cfg!(feature = "rdma") { 4 } else { 0 }
}

/// The most files that joining a peer takes.
fn files_for(calls: &Calls<'_>, peer: usize) -> usize {
    let control = 1;
    match calls.shares_process(peer) {
        true => 0,
        false if calls.line(peer).is_some() => control + LINED_FILES,
        false if calls.may_share_memory(peer) => control + calls.n_streams(peer).max(MEMORY_FILES),
        false => control + calls.n_streams(peer).max(device_files()),
    }
}

impl Fabric {
    /// Joins a group of ranks, given by their numbers in the world, in the group's order. All of them call it.
    ///
    /// # Errors
    ///
    /// A rank doesn't come by `deadline`, or two ranks can't be joined.
    ///
    /// # Panics
    ///
    /// If this rank is not in the group, or a number is not below the world's size.
    pub fn connect(&self, group: GroupId, members: &[usize], deadline: Instant) -> Result<Endpoint, MeshError> {
        let me = members.iter().position(|rank| *rank == self.rank).expect("a rank joins groups that it is in");
        let calls = Calls { fabric: self, group, members, me, deadline };
        let joined = Pairing::new(calls).and_then(Pairing::join);
        joined.inspect_err(|error| calls.refuse(error))
    }
}

impl<'a> Pairing<'a> {
    pub(super) fn new(calls: Calls<'a>) -> Result<Pairing<'a>, MeshError> {
        let mine = calls.card(calls.me);
        let house: Vec<usize> = (0..calls.members.len()).filter(|peer| calls.card(*peer).shares_kernel(mine)).collect();
        let needed = calls.others().map(|peer| files_for(&calls, peer)).sum::<usize>() + OWN_FILES;
        // Those who have called already have their files.
        if let Some(problem) = machine::files_missing(needed.saturating_sub(calls.waiting())) {
            return Err(MeshError::Files { size: calls.members.len(), problem });
        }
        let nonce = machine::random();
        let segment = if house.len() > 1 && (mine.allows(Allowed::Shm) || mine.allows(Allowed::Inproc)) {
            let geometry = Geometry::for_neighbours(house.len(), calls.fabric.is_crowded());
            Some(Arc::new(Segment::create(geometry, nonce).map_err(system("making the shared segment"))?))
        } else {
            None
        };
        let bell = Doorbell::new().map_err(system("making a doorbell"))?;
        Ok(Pairing { calls, bell, nonce, house, segment })
    }

    fn place(&self, peer: usize) -> usize {
        self.house.iter().position(|member| *member == peer).expect("a neighbour lives in the house")
    }

    /// Joins every pair that this rank is in. If one can't be joined, the others are told why.
    pub(super) fn join(self) -> Result<Endpoint, MeshError> {
        let size = self.calls.members.len();
        let (threads, processes): (Vec<usize>, Vec<usize>) =
            self.calls.others().partition(|peer| self.calls.shares_process(*peer));
        let inboxes: Vec<(usize, Inbox)> = threads.into_iter().map(|peer| (peer, self.leave_offer(peer))).collect();
        let handed = self.hand_over(self.calls.lines(&processes));
        let called: Vec<usize> = processes.into_iter().filter(|peer| self.calls.line(*peer).is_none()).collect();
        let mut met = self.calls.with_each(&called, |peer| self.meet(peer));
        met.extend(self.take_over(handed));
        met.extend(inboxes.into_iter().map(|(peer, inbox)| (peer, self.meet_thread(peer, &inbox))));
        let mut links: Vec<Option<Link>> = (0..size).map(|_| None).collect();
        let mut failures = Vec::new();
        for (peer, result) in met {
            match result {
                Ok(link) => links[peer] = Some(link),
                Err(error) => failures.push(error),
            }
        }
        if let Some(error) = MeshError::of_several(failures) {
            let (peers, text) = (error.peers(), error.to_string());
            links.iter_mut().flatten().for_each(|link| link.give_up(&peers, &text));
            return Err(error);
        }
        let peers = self.calls.fabric.peers(self.calls.members);
        Ok(Endpoint::new(self.calls.me, links, peers, self.segment, self.bell))
    }

    /// Joins this rank and one in another process.
    fn meet(&self, peer: usize) -> Result<Link, MeshError> {
        let call = match peer < self.calls.me {
            true => self.calls.call(peer)?,
            false => self.calls.await_call(peer, Purpose::Control)?,
        };
        let (kind, line) = match self.try_memory(peer, &call)? {
            Some((neighbour, line)) => (Kind::Shm(self.ring(peer, neighbour)?), line),
            None => (self.reach_host(peer, &call)?, None),
        };
        let control = SocketControl::new(call.socket, call.local).map_err(system("setting up a control path"))?;
        if let Some(line) = line {
            self.calls.fabric.lines.keep(self.calls.members[peer], Line::new(line, control.watched()));
        }
        Ok(Link::new(kind, Control::Socket(control)))
    }

    /// Without shared memory: the best of what the two allow and can have.
    fn reach_host(&self, peer: usize, call: &Call) -> Result<Kind, MeshError> {
        let (mine, theirs) = (self.calls.card(self.calls.me), self.calls.card(peer));
        let problem = match self.reach_by_device(peer, call)? {
            Ok(kind) => return Ok(kind),
            Err(problem) => problem,
        };
        if mine.allows(Allowed::Tcp) && theirs.allows(Allowed::Tcp) {
            if let Some(problem) = problem {
                tracing::warn!("no rdma link to rank {peer} ({}), tcp is used: {problem}", self.calls.who(peer));
            }
            return Ok(Kind::Tcp(Box::new(self.open_streams(peer)?)));
        }
        let problem = problem.or_else(|| mine.rdma_problem.clone());
        let problem = problem.or_else(|| theirs.rdma_problem.as_ref().map(|said| format!("there: {said}")));
        let problem = problem.map_or_else(String::new, |problem| format!(" (rdma: {problem})"));
        Err(self.calls.failed(peer, format!("{NO_KIND}{problem}")))
    }

    /// The inner error says why not; nothing, if one of the two doesn't allow it.
    #[cfg(feature = "rdma")]
    fn reach_by_device(&self, peer: usize, call: &Call) -> Result<Result<Kind, Option<String>>, MeshError> {
        let (mine, theirs) = (self.calls.card(self.calls.me), self.calls.card(peer));
        if !(mine.allows(Allowed::Rdma) && theirs.allows(Allowed::Rdma)) {
            return Ok(Err(None));
        }
        let tried = self.calls.try_rdma(peer, call)?;
        Ok(tried.map(|link| Kind::Rdma(Box::new(link))).map_err(Some))
    }

    #[cfg(not(feature = "rdma"))]
    #[allow(clippy::unused_self, reason = "with the feature it is used")]
    fn reach_by_device(&self, _: usize, _: &Call) -> Result<Result<Kind, Option<String>>, MeshError> {
        Ok(Err(None))
    }

    /// Joins this rank and one in another thread of this process.
    fn meet_thread(&self, peer: usize, inbox: &Inbox) -> Result<Link, MeshError> {
        let (offer, control) = self.take_offer(peer, inbox)?;
        let neighbour = Neighbour { segment: offer.segment, bell: offer.bell };
        Ok(Link::new(Kind::Inproc(self.ring(peer, neighbour)?), Control::Queue(control)))
    }

    pub(super) fn segment(&self) -> &SharedSegment {
        self.segment.as_ref().expect("a house of two has segments")
    }

    pub(super) fn ring(&self, peer: usize, theirs: Neighbour) -> Result<RingLink, MeshError> {
        let mine = (self.segment().clone(), self.place(self.calls.me));
        let ring = RingLink::new(mine, (theirs.segment, self.place(peer)), theirs.bell);
        ring.map_err(system("mapping a neighbour's ring"))
    }

    /// What goes with this rank's segment.
    pub(super) fn offer(&self) -> shm::Offer {
        shm::Offer::of(self.segment(), self.nonce)
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

    /// Tries shared memory with a peer on the line locally: both offer, both look, both hear what the other saw. In the group of
    /// all ranks the upper one offers an end of a line as well.
    fn try_memory(&self, peer: usize, call: &Call) -> Result<Option<(Neighbour, Option<OwnedFd>)>, MeshError> {
        if !call.local {
            return Ok(None);
        }
        let (socket, deadline) = (call.socket.as_fd(), self.calls.deadline);
        let broken = |error: std::io::Error| match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                self.calls.failed(peer, CLOSED)
            }
            _ => self.calls.failed(peer, format!("trying shared memory: {error}")),
        };
        let (has_line, is_upper) = (self.calls.group == GroupId::WORLD, peer < self.calls.me);
        let ends = if has_line && is_upper { Some(line::ends().map_err(system("making a line"))?) } else { None };
        let theirs = ends.as_ref().map(|(_, theirs)| theirs.as_fd());
        shm::offer(socket, self.offer(), self.segment(), &self.bell, theirs).map_err(broken)?;
        let seen = shm::accept(socket, usize::from(has_line && !is_upper), deadline).map_err(broken)?;
        if let Err(error) = &seen {
            tracing::info!("the shared memory of rank {peer} can't be used, tcp is: {error}");
        }
        shm::tell_verdict(socket, seen.is_ok()).map_err(broken)?;
        let is_seen = shm::hear_verdict(socket, deadline).map_err(broken)?;
        let used = seen.ok().filter(|_| is_seen);
        Ok(used.map(|(neighbour, mut more)| (neighbour, more.pop().or(ends.map(|(mine, _)| mine)))))
    }

    /// The data streams of a tcp link: as many as both want, but one at least.
    fn open_streams(&self, peer: usize) -> Result<TcpLink, MeshError> {
        let mut streams = Vec::new();
        for number in 0..self.calls.n_streams(peer) as u32 {
            let purpose = Purpose::Stream(number);
            let socket = if peer < self.calls.me {
                self.calls.call_tcp(peer, purpose)?
            } else {
                self.calls.await_call(peer, purpose)?.socket
            };
            streams.push(socket.into());
        }
        TcpLink::new(streams).map_err(|error| self.calls.failed(peer, error))
    }
}
