//! Worlds: all ranks of a communicator as threads of this process, joined by one kind of link.

use std::time::Duration;

use paceline_comm::{CallOptions, Communicator, LinkKind, Rendezvous, Setup};
use paceline_transport::rdma::RdmaOptions;
use paceline_transport::rendezvous::Hub;

use crate::is_link_asked_for;

/// How long a call of a test may take before it counts as hung.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How the ranks of a world are joined.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Wire {
    /// Threads of one process that share memory.
    Inproc,
    /// As processes of one host.
    Shm,
    /// As hosts, over the loopback interface.
    Tcp,
    /// The same, over three connections for each pair.
    Streams,
    /// As hosts, over a device of this host.
    Rdma,
    /// The same, over three queue pairs for each pair of ranks.
    Queues,
    /// A simulated network.
    Sim,
}

impl Wire {
    const KNOWN: [Wire; 7] = [Wire::Inproc, Wire::Shm, Wire::Tcp, Wire::Streams, Wire::Rdma, Wire::Queues, Wire::Sim];

    /// Every kind that is asked for, and that this build and this host can have.
    ///
    /// # Panics
    ///
    /// If `PACELINE_TEST_LINKS` lists none of them.
    #[must_use]
    pub fn all() -> Vec<Wire> {
        let mut wires = Wire::KNOWN.to_vec();
        wires.retain(|wire| is_link_asked_for(wire.kind().name()) && wire.is_possible());
        assert!(!wires.is_empty(), "PACELINE_TEST_LINKS lists no kind of link that these tests have");
        wires
    }

    /// The kinds, of those that are asked for, whose ranks are threads that wait in their calls.
    #[must_use]
    pub fn threads() -> Vec<Wire> {
        Wire::all().into_iter().filter(|wire| *wire != Wire::Sim).collect()
    }

    /// Those of `wires` that are asked for; without any, says that what needs them is skipped.
    #[must_use]
    pub fn asked_for(wires: &[Wire]) -> Vec<Wire> {
        let all = Wire::all();
        let found: Vec<Wire> = wires.iter().copied().filter(|wire| all.contains(wire)).collect();
        if found.is_empty() {
            eprintln!("skipped: PACELINE_TEST_LINKS lists none of {wires:?}");
        }
        found
    }

    /// Whether this build and this host can have it.
    fn is_possible(self) -> bool {
        let has_device = || std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut found| found.next().is_some());
        self.kind() != LinkKind::Rdma || (cfg!(feature = "rdma") && has_device())
    }

    /// The kind of link that must join the ranks.
    #[must_use]
    pub fn kind(self) -> LinkKind {
        match self {
            Wire::Inproc => LinkKind::Inproc,
            Wire::Shm => LinkKind::Shm,
            Wire::Rdma | Wire::Queues => LinkKind::Rdma,
            Wire::Tcp | Wire::Streams => LinkKind::Tcp,
            Wire::Sim => LinkKind::Sim,
        }
    }

    /// What rank `rank` of `size` needs to know to be joined in this way.
    ///
    /// # Panics
    ///
    /// For a simulated network, which nobody joins.
    #[must_use]
    pub fn setup(self, rank: usize, size: usize, how: Rendezvous) -> Setup {
        assert!(self != Wire::Sim, "simulated ranks don't meet");
        Setup {
            timeout: PATIENCE,
            init_timeout: PATIENCE,
            links: vec![self.kind()],
            interface: Some("=lo".into()),
            tcp_streams: Some(if self == Wire::Streams { 3 } else { 1 }),
            rdma: RdmaOptions { queue_pairs: if self == Wire::Queues { 3 } else { 1 }, ..RdmaOptions::default() },
            ..Setup::new(rank, size, how)
        }
    }
}

/// A world of `size` ranks as threads, in rank order.
///
/// # Panics
///
/// If they can't be joined, or not by that kind of link.
#[must_use]
pub fn world(wire: Wire, size: usize) -> Vec<Communicator> {
    if wire == Wire::Inproc {
        let patient = CallOptions { timeout: Some(PATIENCE), algorithm: None };
        let ranks = Communicator::in_process(size).expect("ranks of this process");
        return ranks.iter().map(|rank| rank.with(patient.clone())).collect();
    }
    let hub = Hub::new(size);
    let folder = tempfile::tempdir().expect("a folder for the meeting");
    let name = format!("paceline-test-{}-{:016x}", std::process::id(), paceline_transport::endpoint::random_number());
    // Three ways to meet, by turns.
    let meet = |size: usize| match size % 3 {
        0 => Rendezvous::File(folder.path().join("meeting")),
        1 => Rendezvous::Local(name.clone()),
        _ => Rendezvous::Hub(hub.clone()),
    };
    world_of((0..size).map(|rank| wire.setup(rank, size, meet(size))).collect())
}

/// The ranks with these setups, joined.
///
/// # Panics
///
/// If they can't be joined, or not by the first kind of link that the first of them allows.
#[must_use]
pub fn world_of(setups: Vec<Setup>) -> Vec<Communicator> {
    let kind = setups[0].links[0];
    let ranks = at_once(setups, |setup| Communicator::connect(&setup).unwrap_or_else(|error| panic!("{error:?}")));
    for rank in &ranks {
        for peer in (0..rank.size()).filter(|peer| *peer != rank.rank()) {
            assert_eq!(rank.link_kind(peer), Some(kind), "ranks {} and {peer}", rank.rank());
        }
    }
    ranks
}

/// Runs `body` for each of `ranks`, each in a thread of its own, and gives what came of it, in order.
///
/// # Panics
///
/// If one of them does, once all have ended.
pub fn at_once<T: Send, R: Send>(ranks: Vec<T>, body: impl Fn(T) -> R + Sync) -> Vec<R> {
    let body = &body;
    std::thread::scope(|scope| {
        let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || body(rank))).collect();
        let ends: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        ends.into_iter().map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// Makes a world and runs `body` on each rank in a thread of its own.
///
/// # Panics
///
/// As [`world`] and [`at_once`].
pub fn on_each<R: Send>(wire: Wire, size: usize, body: impl Fn(&Communicator) -> R + Sync) -> Vec<R> {
    at_once(world(wire, size), |rank| body(&rank))
}
