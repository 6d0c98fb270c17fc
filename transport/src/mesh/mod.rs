//! From ranks that have met to endpoints: who can reach whom how, found by trying.
//!
//! Each rank brings a card (where it runs, where it listens) to the rendezvous and then knows all cards. For every pair the
//! upper rank calls the lower one. A pair gets, in this order of preference, an inproc link (same process), a shm link
//! (same kernel, and the one could open the other's segment and found the nonce there), an rdma link (each could write into
//! the other's memory), or a tcp link. The control path is the socket over which they talked. All pairs are joined at the
//! same time, so that nobody waits for a rank on behalf of another. Groups made later (`split`) call the same listeners under
//! another identity, except where ranks see each other's memory: these have a line (`line.rs`), over which they hand each
//! other all it takes.

mod calls;
mod card;
mod door;
mod error;
mod fabric;
mod line;
mod lined;
mod listen;
mod pair;
#[cfg(feature = "rdma")]
mod rdma;
mod share;

pub use error::MeshError;
pub use fabric::{Fabric, GroupId};
