//! The link contract: bytes between two ranks, in frames, without blocking.
//!
//! A link joins this rank and one peer. What passes over it is a sequence of *frames*, first in, first out. Each frame
//! belongs to a [`Channel`] (one collective in flight, on one lane) and carries a [`Stamp`].
//!
//! Every kind of link keeps these promises, and `tests/links.rs` checks them on each:
//!
//! 1. **Nothing blocks.** `send` accepts what there is room for now, `head` shows what is here now.
//! 2. **A message is what one or more `send` calls carry, front to back.** `send(channel, stamp, message)` says how many
//!    bytes from the front it accepted. The caller presents the rest, the same bytes at the same address, until all
//!    are accepted; a link may have begun on bytes further back, reading them straight from the caller's memory.
//!    Between the first and last such call no message of another channel may be begun by the same caller unless the
//!    first is unfinished for want of room, in which case calls may interleave per channel.
//! 3. **A frame never spans two messages.** An empty message is one empty frame.
//! 4. **The receiver reads where the bytes lie.** `head` lends the arrived, unread bytes of the oldest frame;
//!    `advance` gives them back. A frame may show its bytes in pieces, and it may split an element. A link may keep a
//!    message's bytes back until it knows whether the receiver wants them there (`show`) or in memory of its own
//!    (`recv_into`, which then gives 0 at first and must be called again with the same target until the bytes are there):
//!    then nobody copies them.
//! 5. **Death is an error from either end**, told apart from leaving (see [`crate::control`]).
//!
//! A frame of a channel that nobody waits for must not block the ones behind it for ever: the owner of the link calls
//! `set_aside` when nothing else moves, and the frame's bytes are copied to a queue of its channel.

mod aside;
mod kinds;

pub(crate) use kinds::{Kind, Link};

/// What separates the byte streams that share a link: a collective in flight, and the lane it runs on.
///
/// The owner of the links gives the number a meaning; a link only compares it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Channel(pub u64);

/// Sixteen bytes that ride with every frame, so that two ranks that disagree about what they do find out.
///
/// A link carries and compares the stamp and never reads it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Stamp(pub [u64; 2]);

/// The oldest frame that has not been wholly read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head<'a> {
    /// The channel that the frame belongs to.
    pub channel: Channel,
    /// The stamp it was sent with.
    pub stamp: Stamp,
    /// Bytes of the frame not yet read, arrived or not.
    pub left: usize,
    /// Those of them that have arrived and can be read here; may be shorter than `left`, even empty.
    pub bytes: &'a [u8],
}

/// What kind of link joins two ranks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LinkKind {
    /// Ranks as threads of one process.
    Inproc,
    /// Processes of one host, over a shared mapping.
    Shm,
    /// Hosts, over InfiniBand or RoCE.
    Rdma,
    /// Hosts, over TCP.
    Tcp,
    /// A simulated network on a virtual clock.
    Sim,
}

impl LinkKind {
    /// The kind's name in logs, tables and the environment.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LinkKind::Inproc => "inproc",
            LinkKind::Shm => "shm",
            LinkKind::Rdma => "rdma",
            LinkKind::Tcp => "tcp",
            LinkKind::Sim => "sim",
        }
    }
}

impl std::fmt::Display for LinkKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Why a link can't go on. Whoever owns the link knows, and adds, which peer is at its other end.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The peer's end is closed, and nothing more will come.
    #[error("the connection was closed by the peer")]
    Closed,
    /// The operating system refused or broke the connection.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The device or the network between can't go on.
    #[cfg(feature = "rdma")]
    #[error(transparent)]
    Rdma(Box<crate::rdma::RdmaError>),
    /// The peer sent something that no sound peer sends.
    #[error("the peer broke the protocol: {0}")]
    Protocol(String),
}
