//! Links that move bytes between ranks.
//!
//! This crate knows peers, links, memory that peers may reach, rendezvous and facts about the machine. It does not
//! know what a collective, an element type or a reduction is: a message is bytes, and the sixteen-byte [`Stamp`] that
//! rides with every frame is carried and compared, never read.
//!
//! A link has one contract ([`link`]) and a closed set of kinds, one room each.

mod board;
pub mod clock;
pub mod control;
mod cores;
#[cfg(feature = "cuda")]
pub mod cuda;
mod doorbell;
pub mod endpoint;
pub mod environment;
mod extents;
pub mod forks;
mod inproc;
pub mod link;
pub mod machine;
pub mod memory;
pub mod mesh;
mod promptly;
#[cfg(feature = "rdma")]
pub mod rdma;
/// Options of links over InfiniBand and RoCE, which this build doesn't have (feature `rdma`).
#[cfg(not(feature = "rdma"))]
pub mod rdma {
    mod options;

    pub use options::RdmaOptions;
}
pub mod rendezvous;
mod ring;
mod segment;
mod shm;
pub mod sim;
mod stream;
mod sync;
mod sys;
pub mod tcp;

pub use board::{Board, Heading};
pub use clock::{Clock, Time};
pub use control::ControlEvent;
pub use doorbell::Waker;
pub use endpoint::{Endpoint, Loan, Peer};
pub use environment::Environment;
pub use link::{Channel, Head, LinkError, LinkKind, Stamp};
pub use memory::Region;
pub use mesh::{Fabric, GroupId, MeshError};
pub use promptly::run_promptly;
pub use rendezvous::{Exchanged, ProfilePlace, Rendezvous, RendezvousError, Setup};
pub use stream::copy as copy_past_caches;
