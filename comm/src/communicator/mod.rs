//! A communicator: a group of ranks, and the collectives between them.

mod buffer;
mod calls;
#[cfg(feature = "cuda")]
mod devices;
mod group;
mod prepare;
mod quick;
mod setup;
mod spare;
mod split;
mod started;
mod windows;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use paceline_transport::sim::RankStep;
use paceline_transport::{Clock, Endpoint, Fabric, GroupId, LinkKind, Peer};

use crate::collective::Collective;
use crate::engine::{Core, Driver, Engine, Kin, Look, Stamps, WaitPolicies, remembered};
use crate::error::{Error, ErrorKind, Result};
use crate::request::{CallOptions, Request};
use crate::select::{Circumstances, Explanation, Facts, Prices};
use crate::topology::Layout;

pub use buffer::Buffer;
#[cfg(feature = "cuda")]
pub(crate) use devices::WeakCommunicator;
pub use group::Group;
#[cfg(feature = "cuda")]
pub(crate) use group::join_own_messages;
pub use started::Started;
pub use work::Work;

use prepare::Plans;
use quick::Readies;
use spare::{Spare, Spares};
use windows::Registry;

/// One rank's membership of a group of ranks.
///
/// Every rank of the group makes the same calls in the same order. A call blocks until this rank's part is done, runs in
/// the caller's thread, and ends with an error, never later than its timeout, if it can't be done; `start_*` calls return
/// at once with a [`Work`]. After an error other than [`crate::ErrorKind::InvalidArgument`] the communicator is dead and
/// every call says why. A communicator may be used from several threads, as long as collectives are called in the same
/// order on every rank; different communicators don't wait for each other. Dropping one is local and doesn't wait for
/// other ranks.
///
/// ```
/// use paceline_comm::{Communicator, ReduceOp};
///
/// let ranks = Communicator::in_process(2)?;
/// std::thread::scope(|scope| {
///     for comm in &ranks {
///         scope.spawn(move || {
///             let mut total = [0.0f32; 3];
///             comm.all_reduce(&[1.0, 2.0, comm.rank() as f32], &mut total, ReduceOp::Sum).unwrap();
///             assert_eq!(total, [2.0, 4.0, 1.0]);
///         });
///     }
/// });
/// # Ok::<(), paceline_comm::Error>(())
/// ```
pub struct Communicator {
    inner: Arc<Inner>,
    options: CallOptions,
}

struct Inner {
    engine: Engine,
    rank: usize,
    size: usize,
    peers: Arc<[Peer]>,
    links: Box<[Option<LinkKind>]>,
    facts: Facts,
    timeout: Duration,
    roots: Roots,
    /// Which group this is, there.
    group: GroupId,
    /// Each rank's number in the world.
    members: Arc<[usize]>,
    /// Registered memory allocated so far.
    memories: AtomicU64,
    registry: Registry,
    plans: Plans,
    readies: Readies,
    /// Collectives called so far.
    sequence: AtomicU64,
    /// The turn of the boards that is next.
    turns: AtomicU64,
    /// A digest of them all, in their order.
    history: AtomicU64,
    /// Messages sent to and received from each rank so far.
    sent: Box<[AtomicU64]>,
    received: Box<[AtomicU64]>,
    /// Calls over memory of devices.
    #[cfg(feature = "cuda")]
    pending: Arc<crate::cuda::Pending>,
}

impl Inner {
    /// The number of the next turn, of so many that a call takes. Never the same twice, even if calls are made at the same
    /// time, against the rules: two that share a turn would write the same lines.
    #[inline]
    fn next_turns(&self, turns: u64) -> u64 {
        self.turns.fetch_add(turns, Ordering::Relaxed)
    }

    /// Adds a collective to the digest of all; what that was before.
    #[inline]
    fn note_in_history(&self, stamps: &Stamps) -> u64 {
        let history = self.history.load(Ordering::Relaxed);
        // Whoever calls collectives from several threads makes them follow each other.
        self.history.store(remembered(history, stamps.own()), Ordering::Relaxed);
        history
    }
}

/// What the communicators of one rank share.
#[derive(Clone)]
struct Roots {
    /// How to call the ranks again, for groups of them.
    fabric: Arc<Fabric>,
    kin: Kin,
    spares: Spares,
}

impl Roots {
    fn of(fabric: Arc<Fabric>) -> Roots {
        Roots { fabric, kin: Kin::default(), spares: Spares::default() }
    }
}

impl Communicator {
    /// A communicator over an endpoint whose ranks have the numbers `members` in the world.
    fn over(endpoint: Endpoint, roots: Roots, group: (GroupId, Arc<[usize]>), facts: Facts, timeout: Duration) -> Self {
        Communicator::driven((Driver::Threads, Clock::Real), endpoint, roots, group, facts, timeout)
    }

    fn driven(
        (driver, clock): (Driver, Clock),
        mut endpoint: Endpoint,
        roots: Roots,
        (group, members): (GroupId, Arc<[usize]>),
        facts: Facts,
        timeout: Duration,
    ) -> Communicator {
        let (rank, size) = (endpoint.me(), endpoint.size());
        let peers = endpoint.peers().clone();
        let links: Box<[_]> = (0..size).map(|peer| endpoint.link_kind(peer)).collect();
        let turns = endpoint.board().map_or(0, |board| board.turn());
        let house = peers[rank].house;
        let neighbours = peers.iter().filter(|peer| peer.house == house).count();
        let look = match endpoint.has_software_device() {
            true => Look::TakesFromDevice,
            false if links.contains(&Some(LinkKind::Tcp)) => Look::SystemCall,
            false => Look::Memory,
        };
        let neighbours = neighbours.max(roots.fabric.n_neighbours());
        let core = Core::new(endpoint, clock, WaitPolicies::for_host(neighbours, peers[rank].cores, look));
        let core = core.among(roots.kin.clone(), members.clone());
        let zeros = || (0..size).map(|_| AtomicU64::new(0)).collect();
        let inner = Inner {
            engine: Engine::new(core, driver),
            rank,
            size,
            peers,
            links,
            facts,
            timeout,
            roots,
            group,
            members,
            memories: AtomicU64::new(0),
            registry: Registry::default(),
            plans: Plans::default(),
            readies: Readies::default(),
            sequence: AtomicU64::new(0),
            turns: AtomicU64::new(turns),
            history: AtomicU64::new(0),
            sent: zeros(),
            received: zeros(),
            #[cfg(feature = "cuda")]
            pending: Arc::default(),
        };
        Communicator { inner: Arc::new(inner), options: CallOptions::default() }
    }

    /// Looks once at every call that was started, without waiting; how they stand. For ranks of a simulated network.
    pub fn step(&self) -> RankStep {
        self.inner.engine.step()
    }

    /// This rank's number, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.inner.rank
    }

    /// How many ranks there are.
    #[must_use]
    pub fn size(&self) -> usize {
        self.inner.size
    }

    /// This rank's number among the ranks of its host, from 0.
    #[must_use]
    pub fn local_rank(&self) -> usize {
        let house = self.inner.peers[self.inner.rank].house;
        self.inner.peers[..self.inner.rank].iter().filter(|peer| peer.house == house).count()
    }

    /// How many ranks share this rank's host.
    #[must_use]
    pub fn local_size(&self) -> usize {
        let house = self.inner.peers[self.inner.rank].house;
        self.inner.peers.iter().filter(|peer| peer.house == house).count()
    }

    /// How many hosts there are.
    #[must_use]
    pub fn n_hosts(&self) -> usize {
        self.inner.peers.iter().enumerate().filter(|(rank, peer)| peer.house == *rank).count()
    }

    /// Where a rank runs.
    ///
    /// # Panics
    ///
    /// If `rank` is not below the size.
    #[must_use]
    pub fn peer(&self, rank: usize) -> &Peer {
        &self.inner.peers[rank]
    }

    /// The kind of link to a rank; `None` for this rank itself.
    ///
    /// # Panics
    ///
    /// If `rank` is not below the size.
    #[must_use]
    pub fn link_kind(&self, rank: usize) -> Option<LinkKind> {
        self.inner.links[rank]
    }

    /// How long a call of this handle may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.options.timeout.unwrap_or(self.inner.timeout)
    }

    /// Another handle of the same communicator, whose calls have other options.
    ///
    /// ```
    /// # use paceline_comm::{CallOptions, Communicator, ReduceOp};
    /// # use std::time::Duration;
    /// # let comm = &Communicator::in_process(1)?[0];
    /// let patient = comm.with(CallOptions { timeout: Some(Duration::from_secs(600)), ..CallOptions::default() });
    /// patient.all_reduce_in_place(&mut [1.0f64], ReduceOp::Max)?;
    /// # Ok::<(), paceline_comm::Error>(())
    /// ```
    #[must_use]
    pub fn with(&self, options: CallOptions) -> Communicator {
        Communicator { inner: self.inner.clone(), options }
    }

    /// Several calls that run as one: see [`Group`].
    pub fn group(&self) -> Group<'_, '_> {
        Group::new(self)
    }

    /// Runs any collective, described by data.
    ///
    /// # Errors
    ///
    /// As for each collective; see [`crate::ErrorKind`].
    pub fn run(&self, request: Request<'_>) -> Result<()> {
        self.after_devices()?;
        self.run_now(request)
    }

    /// As [`Communicator::run`], whatever calls over memory of devices there are.
    pub(crate) fn run_now(&self, mut request: Request<'_>) -> Result<()> {
        if let Some(ended) = self.run_quick(&mut request) {
            return ended;
        }
        let prepared = self.prepare_and_keep(request)?;
        self.inner.engine.run([self.activate(prepared, None)])
    }

    /// Which algorithm a call would run, and why. `bytes` is the whole message: the vector, or all ranks' blocks together.
    ///
    /// # Errors
    ///
    /// If `collective` is a message, or the wished-for algorithm doesn't exist.
    pub fn explain(&self, collective: Collective, bytes: usize) -> Result<Explanation> {
        if collective.is_message() {
            return Err(Error::invalid(format!("{collective} is a message: there is nothing to choose")));
        }
        self.inner.facts.explain(collective, bytes, &self.options)
    }

    /// What each row that fits a call of `bytes` bytes of the whole message would take, in seconds, if the slowest kind of link
    /// charged `prices`.
    #[must_use]
    pub fn priced_at(&self, collective: Collective, bytes: usize, prices: &Prices) -> Vec<(&'static str, f64)> {
        self.inner.facts.priced_at(collective, bytes, prices)
    }

    /// Where the ranks are, the same on all ranks: hosts, and the order in which rows take them.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        self.inner.facts.layout()
    }

    /// What measured choices depend on, the same on all ranks.
    #[must_use]
    pub fn circumstances(&self) -> Circumstances {
        self.inner.facts.circumstances()
    }

    /// Ends every call under way on all ranks, and all later ones, with an error that gives `reason`.
    ///
    /// Local, bounded, and callable from any thread: it doesn't wait for anyone.
    pub fn abort(&self, reason: &str) {
        self.inner.engine.fail(Error::new(ErrorKind::Aborted, reason));
    }

    /// Whether the communicator still works: takes in what other ranks have told, without waiting.
    ///
    /// ```
    /// # use paceline_comm::Communicator;
    /// # let comm = &Communicator::in_process(1)?[0];
    /// assert!(comm.check().is_ok());
    /// comm.abort("for the example");
    /// assert!(comm.check().is_err());
    /// # Ok::<(), paceline_comm::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error that ended it. While another thread is in a call, that thread learns it first.
    pub fn check(&self) -> Result<()> {
        self.inner.engine.check_process()?;
        self.inner.engine.look().map(drop)
    }

    /// Has the blocking calls of this rank, in this communicator and all that come from the same one, ask whether to give up: in
    /// the caller's thread, ten times a second while it waits for longer than it is worth looking at once. With a reason they end as
    /// with [`Communicator::abort`]. Only the first `asks` counts.
    ///
    /// `asks` may take locks, but not wait for calls of this rank. Started calls don't ask: whoever waits for them may stop waiting.
    pub fn ask_while_waiting(&self, asks: impl Fn() -> Option<String> + Send + Sync + 'static) {
        self.inner.roots.kin.ask_while_waiting(Box::new(asks));
    }

    /// Waits for calls over memory of devices that were made before.
    #[inline]
    fn after_devices(&self) -> Result<()> {
        #[cfg(feature = "cuda")]
        if !self.inner.pending.is_none() {
            return self.wait_for_devices();
        }
        Ok(())
    }

    /// Ends the communicator for what went wrong beside the engine: the other ranks, which may be past it, learn why.
    pub(crate) fn failed(&self, error: Error) -> Error {
        self.inner.engine.fail_unless_known(error)
    }

    fn next_sequence(&self) -> u64 {
        self.inner.sequence.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl Inner {
    fn next_memory(&self) -> u64 {
        self.memories.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.group == GroupId::WORLD {
            return;
        }
        let (group, members) = (self.group, self.members.clone());
        let links = self.engine.retire();
        let spare = links.map(|endpoint| Spare { group, members, endpoint, facts: self.facts.clone() });
        self.roots.spares.keep(spare);
    }
}

impl std::fmt::Debug for Communicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Communicator {{ rank: {}, size: {} }}", self.inner.rank, self.inner.size)
    }
}
