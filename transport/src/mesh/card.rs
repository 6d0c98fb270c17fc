//! What a rank tells all others at the rendezvous.

use std::net::SocketAddr;

use crate::cores::Cores;
use crate::link::LinkKind;
use crate::machine;

/// Where a rank runs and how to call it.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Card {
    pub(crate) host: String,
    pub(crate) pid: u32,
    /// The kernel that the process runs on: a number made at boot. Ranks with the same may try shared memory.
    pub(crate) boot: String,
    /// The process: a number made when it first joined, so that two containers' equal pids are told apart.
    pub(crate) process: [u8; 16],
    /// The name of the Unix socket it listens on, in the abstract name space.
    pub(crate) unix: Option<Vec<u8>>,
    /// Where it listens for other hosts, best first.
    pub(crate) tcp: Vec<SocketAddr>,
    /// What kinds of links it allows.
    pub(crate) kinds: Vec<Allowed>,
    /// Where it may run.
    pub(crate) cores: Cores,
    /// Connections per peer that it wants.
    pub(crate) streams: u32,
    /// Why links over InfiniBand or RoCE, which were wanted, can't be had.
    pub(crate) rdma_problem: Option<String>,
}

/// A kind of link on a card.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Allowed {
    Inproc,
    Shm,
    Tcp,
    Rdma,
}

impl Card {
    /// A card of this process, that can't be called yet.
    pub(crate) fn here(kinds: &[LinkKind], streams: u32) -> Card {
        let kinds = kinds.iter().filter_map(|kind| match kind {
            LinkKind::Inproc => Some(Allowed::Inproc),
            LinkKind::Shm => Some(Allowed::Shm),
            LinkKind::Tcp => Some(Allowed::Tcp),
            LinkKind::Rdma => Some(Allowed::Rdma),
            LinkKind::Sim => None,
        });
        Card {
            host: machine::host_name(),
            pid: std::process::id(),
            boot: machine::boot_id(),
            process: machine::process_id(),
            unix: None,
            tcp: Vec::new(),
            kinds: kinds.collect(),
            cores: Cores::mine(),
            streams,
            rdma_problem: None,
        }
    }

    pub(crate) fn allows(&self, kind: Allowed) -> bool {
        self.kinds.contains(&kind)
    }

    /// Whether other hosts may call it.
    pub(crate) fn can_be_called(&self) -> bool {
        self.allows(Allowed::Tcp) || self.allows(Allowed::Rdma)
    }

    /// Takes a kind of link off, for which there is no device.
    #[cfg(feature = "rdma")]
    pub(crate) fn without_rdma(&mut self, problem: String) {
        self.kinds.retain(|kind| *kind != Allowed::Rdma);
        self.rdma_problem = Some(problem);
    }

    /// Whether the two run in one process and may use that.
    pub(crate) fn shares_process(&self, other: &Card) -> bool {
        self.process == other.process && self.allows(Allowed::Inproc) && other.allows(Allowed::Inproc)
    }

    /// Whether the two run on one kernel.
    pub(crate) fn shares_kernel(&self, other: &Card) -> bool {
        self.boot == other.boot
    }
}
