//! One rank's end of all its links: sending, receiving, sleeping, and news of its peers.

mod lend;
mod retire;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::epoll;

use crate::board::{Board, Heading};
use crate::control::{Control, ControlEvent, QueueControl};
use crate::cores::Cores;
use crate::doorbell::{Doorbell, Waker};
use crate::link::{Channel, Head, Kind, Link, LinkError, LinkKind, Stamp};
use crate::ring::{RingLink, fence_before_waking};
use crate::segment::{Geometry, Segment, SharedSegment};
use crate::sim::SimNetwork;

pub use lend::Loan;

/// What a rank knows of another: where it runs.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Peer {
    /// The host's name.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// Which ranks share a host have the same number: the lowest rank there.
    pub house: usize,
    /// How many cores all ranks of its host may use together.
    pub cores: usize,
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "host {}, pid {}", self.host, self.pid)
    }
}

/// This rank's links to all others of one group.
pub struct Endpoint {
    me: usize,
    links: Vec<Option<Link>>,
    peers: Arc<[Peer]>,
    /// This rank's segment, in which its neighbours see whether it sleeps.
    segment: Option<SharedSegment>,
    /// The boards, if all links are through memory.
    board: Option<Board>,
    waker: Waker,
    poller: Option<Poller>,
    /// The process that made the endpoint: a forked child must not speak for it.
    process: u32,
    /// Whose control path may have something: what was read to its end has not, until the poller says so.
    stirred: Vec<bool>,
    /// Whether arriving bytes come together before they wake the sleeper.
    coalesces: bool,
}

struct Poller {
    epoll: std::os::fd::OwnedFd,
}

/// Marks, beside a peer's number, an event of the peer's process.
const PROCESS: u64 = 1 << 63;

impl Endpoint {
    /// How many peers' news one [`Endpoint::sleep`] finds at most.
    pub const NEWS_AT_ONCE: usize = 16;

    pub(crate) fn new(
        me: usize,
        mut links: Vec<Option<Link>>,
        peers: Arc<[Peer]>,
        segment: Option<SharedSegment>,
        doorbell: Doorbell,
    ) -> Endpoint {
        assert!(me < links.len() && links.len() == peers.len());
        let board = boards(&mut links, segment.as_ref());
        let waker = Waker { doorbell, sleeping: Arc::new(AtomicBool::new(false)) };
        let stirred = vec![true; links.len()];
        Endpoint {
            me,
            links,
            peers,
            segment,
            board,
            waker,
            poller: None,
            process: std::process::id(),
            stirred,
            coalesces: false,
        }
    }

    /// This rank's number.
    #[must_use]
    pub fn me(&self) -> usize {
        self.me
    }

    /// How many ranks there are.
    #[must_use]
    pub fn size(&self) -> usize {
        self.links.len()
    }

    /// Where each rank runs.
    #[must_use]
    pub fn peers(&self) -> &Arc<[Peer]> {
        &self.peers
    }

    /// The kind of link to a peer; `None` for this rank itself.
    #[must_use]
    pub fn link_kind(&self, peer: usize) -> Option<LinkKind> {
        self.links[peer].as_ref().map(Link::kind)
    }

    /// Whether a link's device is a program of the kernel's (soft-RoCE): it moves nothing while this rank has the core.
    #[must_use]
    pub fn has_software_device(&self) -> bool {
        self.links.iter().flatten().any(Link::is_software_device)
    }

    /// What is wrong with the way to a peer though no call has failed for it yet, if that is known: a port that is down may
    /// come up again, so what was sent over it is still being tried.
    #[must_use]
    pub fn trouble(&self, peer: usize) -> Option<String> {
        self.links[peer].as_ref().and_then(Link::trouble)
    }

    #[inline(always)]
    fn link(&mut self, peer: usize) -> &mut Link {
        self.links[peer].as_mut().expect("a rank has no link to itself")
    }

    /// Sends bytes from the front of `message` (see [`crate::link`], promise 2); `None` while there is no room.
    ///
    /// # Panics
    /// If `peer` is this rank, here and in the calls below.
    #[inline]
    pub fn send(
        &mut self,
        peer: usize,
        channel: Channel,
        stamp: Stamp,
        message: &[u8],
    ) -> Result<Option<usize>, LinkError> {
        self.link(peer).send(channel, stamp, message)
    }

    /// What has arrived from a peer on a channel, if that is what comes next.
    #[inline]
    pub fn head(&mut self, peer: usize, channel: Channel) -> Result<Option<Head<'_>>, LinkError> {
        self.link(peer).head(channel)
    }

    /// Marks bytes of the head as read; with 0, releases an empty frame.
    #[inline]
    pub fn advance(&mut self, peer: usize, channel: Channel, bytes: usize) {
        self.link(peer).advance(channel, bytes);
    }

    /// Moves arrived bytes of the head to `target` and says how many.
    #[inline]
    pub fn recv_into(&mut self, peer: usize, channel: Channel, target: &mut [u8]) -> Result<usize, LinkError> {
        self.link(peer).recv_into(channel, target)
    }

    /// Asks for the bytes of a channel's head that shows none, where they can be read; [`Endpoint::recv_into`] would have
    /// them put into its target. See [`crate::link`], promise 4.
    pub fn show(&mut self, peer: usize, channel: Channel) {
        if matches!(self.link(peer).head(channel), Ok(Some(head)) if head.bytes.is_empty()) {
            self.link(peer).show();
        }
    }

    /// As [`Endpoint::recv_into`], for bytes that nobody reads soon: they need not stay in a cache.
    pub fn recv_past_caches(&mut self, peer: usize, channel: Channel, target: &mut [u8]) -> Result<usize, LinkError> {
        self.link(peer).recv_past_caches(channel, target)
    }

    /// Moves a frame that `waiting` is stuck behind out of the way, and says which. To be called when nothing else moves.
    pub fn set_aside(&mut self, peer: usize, waiting: Channel) -> Result<Option<(Channel, Stamp)>, LinkError> {
        self.link(peer).set_aside(waiting)
    }

    /// The boards, if all links are through memory: then at every rank of the group.
    #[inline]
    pub fn board(&mut self) -> Option<&mut Board> {
        self.board.as_mut()
    }

    /// Publishes on the board; the peers that sleep are woken with the next [`Endpoint::ring_peers`].
    ///
    /// # Panics
    ///
    /// If there is no board, and as [`Board::publish`].
    #[inline]
    pub fn publish(&mut self, heading: Heading, message: &[u8]) {
        self.board.as_mut().expect("there are boards").publish(heading, message);
        self.touch_boards();
    }

    /// Publishes the next turn before it is this rank's: [`Board::publish_ahead`].
    ///
    /// # Panics
    ///
    /// If there is no board.
    pub fn publish_ahead(&mut self, heading: Heading, message: &[u8]) -> bool {
        let published = self.board.as_mut().expect("there are boards").publish_ahead(heading, message);
        if published {
            self.touch_boards();
        }
        published
    }

    /// Ends the turn of this rank's board: [`Board::finish`].
    ///
    /// # Panics
    ///
    /// If there is no board.
    #[inline]
    pub fn finish_turn(&mut self) {
        let somebody_may_wait = self.board.as_mut().expect("there are boards").finish();
        if somebody_may_wait {
            self.touch_boards();
        }
    }

    /// All who see this rank's board have something to see.
    #[inline]
    fn touch_boards(&mut self) {
        self.links.iter_mut().flatten().filter_map(Link::ring).for_each(RingLink::touch);
    }

    /// Wakes the peers that sleep and have something to see since the last call. To be called after every pass.
    #[inline]
    pub fn ring_peers(&mut self) {
        let mut fenced = false;
        for link in self.links.iter_mut().flatten() {
            if link.take_touched() {
                if !fenced {
                    fence_before_waking();
                    fenced = true;
                }
                link.ring_if_asleep();
            }
        }
    }

    /// The next piece of news from any peer.
    pub fn control_event(&mut self) -> Option<(usize, ControlEvent)> {
        for (peer, link) in self.links.iter_mut().enumerate() {
            let Some(link) = link else { continue };
            if !self.stirred[peer] && link.control_file().is_some() {
                continue;
            }
            if let Some(event) = link.control_event() {
                return Some((peer, event));
            }
            self.stirred[peer] = false;
        }
        None
    }

    /// Sends a peer a notice.
    pub fn notify(&mut self, peer: usize, notice: &[u8]) {
        self.link(peer).notify(notice);
    }

    /// What wakes this endpoint's owner from another thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Announces sleep. After it the caller looks at everything once more, and only if nothing moves calls
    /// [`Endpoint::sleep`]; in either case [`Endpoint::awake`] follows.
    pub fn about_to_sleep(&mut self) {
        if let Some(segment) = &self.segment {
            segment.set_sleeping(true);
        }
        self.waker.sleeping.store(true, Ordering::Relaxed);
        fence_before_waking();
        #[cfg(feature = "rdma")]
        self.links.iter_mut().flatten().for_each(Link::about_to_sleep);
    }

    /// Sleeps until something may have changed, at most `longest`.
    pub fn sleep(&mut self, longest: Duration) -> std::io::Result<()> {
        if self.poller.is_none() {
            self.poller = Some(self.make_poller()?);
        }
        let poller = self.poller.as_ref().expect("made above");
        let timeout = rustix::event::Timespec {
            tv_sec: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(longest.subsec_nanos()),
        };
        let mut events = [std::mem::MaybeUninit::<epoll::Event>::uninit(); Endpoint::NEWS_AT_ONCE];
        match epoll::wait(&poller.epoll, &mut events, Some(&timeout)) {
            Ok((found, _)) => {
                for event in found {
                    let (peer, is_process) = (event.data.u64() & !PROCESS, event.data.u64() & PROCESS != 0);
                    let Some(link) = usize::try_from(peer).ok().and_then(|peer| self.links.get_mut(peer)) else {
                        continue;
                    };
                    self.stirred[peer as usize] = true;
                    if let (true, Some(link)) = (is_process, link) {
                        link.process_ended();
                    }
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.waker.doorbell.quiet();
        Ok(())
    }

    /// Whether what is in the middle of arriving wakes the sleeper only by its end or by a large part of it, for an owner whose
    /// processor has better things to do. To be repeated before each sleep, and ended with `false`.
    pub fn coalesce(&mut self, on: bool) {
        if on || self.coalesces {
            self.links.iter_mut().flatten().for_each(|link| link.coalesce(on));
            self.coalesces = on;
        }
    }

    /// Ends what [`Endpoint::about_to_sleep`] began.
    pub fn awake(&mut self) {
        if let Some(segment) = &self.segment {
            segment.set_sleeping(false);
        }
        self.waker.sleeping.store(false, Ordering::Relaxed);
    }

    /// Edge-triggered, so that a link whose news waits for another link's doesn't keep the sleeper awake.
    fn make_poller(&self) -> std::io::Result<Poller> {
        const NOBODY: epoll::EventData = epoll::EventData::new_u64(!PROCESS);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let edge = epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(&epoll, self.waker.doorbell.file(), NOBODY, epoll::EventFlags::IN)?;
        for (peer, link) in self.links.iter().enumerate() {
            let Some(link) = link else { continue };
            if let Some(file) = link.control_file() {
                let whose = epoll::EventData::new_u64(peer as u64);
                epoll::add(&epoll, file, whose, edge | epoll::EventFlags::IN)?;
            }
            if let Some(file) = link.process() {
                let whose = epoll::EventData::new_u64(peer as u64 | PROCESS);
                epoll::add(&epoll, file, whose, edge | epoll::EventFlags::IN)?;
            }
            for file in link.data_files() {
                match epoll::add(&epoll, file, NOBODY, edge | epoll::EventFlags::IN | epoll::EventFlags::OUT) {
                    // Links over one device share its file for what concerns them all.
                    Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(Poller { epoll })
    }
}

/// The boards of a group whose links all go through memory.
fn boards(links: &mut [Option<Link>], segment: Option<&SharedSegment>) -> Option<Board> {
    let neighbour = |link: &mut Option<Link>| match link {
        None => Some(None),
        Some(link) => link.ring().map(|ring| Some(ring.neighbour().clone())),
    };
    let theirs: Option<Vec<_>> = links.iter_mut().map(neighbour).collect();
    Some(Board::new(segment?, &theirs?))
}

/// The endpoints of `size` ranks in this process, in rank order.
///
/// # Errors
///
/// If `size` is 0, or memory or files can't be had.
pub fn in_process(size: usize) -> std::io::Result<Vec<Endpoint>> {
    if size == 0 {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "a group has at least one rank"));
    }
    let cores = Cores::together([&Cores::mine()].into_iter());
    let peer = Peer { host: crate::machine::host_name(), pid: std::process::id(), house: 0, cores };
    let peers: Arc<[Peer]> = vec![peer; size].into();
    let geometry = Geometry::for_neighbours(size, size > cores);
    let bells = (0..size).map(|_| Doorbell::new()).collect::<std::io::Result<Vec<_>>>()?;
    if size == 1 {
        return Ok(vec![Endpoint::new(0, vec![None], peers, None, bells[0].clone())]);
    }
    let segments = (0..size).map(|_| Segment::create(geometry, [0; 16]).map(Arc::new));
    let segments = segments.collect::<std::io::Result<Vec<SharedSegment>>>()?;
    let mut links: Vec<Vec<Option<Link>>> = (0..size).map(|_| (0..size).map(|_| None).collect()).collect();
    for upper in 0..size {
        for lower in 0..upper {
            let (first, second) = QueueControl::pair(bells[lower].clone(), bells[upper].clone());
            for (me, peer, control) in [(lower, upper, first), (upper, lower, second)] {
                let ring =
                    RingLink::new((segments[me].clone(), me), (segments[peer].clone(), peer), bells[peer].clone())?;
                links[me][peer] = Some(Link::new(Kind::Inproc(ring), Control::Queue(control)));
            }
        }
    }
    let ranks = links.into_iter().zip(segments).zip(bells).enumerate();
    Ok(ranks
        .map(|(me, ((links, segment), bell))| Endpoint::new(me, links, peers.clone(), Some(segment), bell))
        .collect())
}

/// A number that nobody else has, from the kernel's random numbers.
#[must_use]
pub fn random_number() -> u128 {
    u128::from_le_bytes(crate::machine::random())
}

/// The endpoints of all ranks of a simulated network, in rank order; each rank is a host of its own.
///
/// # Errors
///
/// If files for the doorbells can't be had.
pub fn simulated(network: &SimNetwork) -> std::io::Result<Vec<Endpoint>> {
    let size = network.ranks();
    let peer = |rank: usize| Peer { host: format!("sim{rank}"), pid: std::process::id(), house: rank, cores: 1 };
    let peers: Arc<[Peer]> = (0..size).map(peer).collect();
    let link = |me: usize, peer: usize| {
        let link = network.link(me, peer);
        let control = link.control();
        Link::new(Kind::Sim(Box::new(link)), Control::Sim(control))
    };
    let endpoint = |me: usize| {
        let links = (0..size).map(|peer| (peer != me).then(|| link(me, peer))).collect();
        Ok(Endpoint::new(me, links, peers.clone(), None, Doorbell::new()?))
    };
    (0..size).map(endpoint).collect()
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            self.links.iter_mut().flatten().for_each(Link::leave);
        }
    }
}
