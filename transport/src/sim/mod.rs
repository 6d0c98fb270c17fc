//! A simulated network: any number of ranks in one thread, on a virtual clock, repeated by a seed.
//!
//! A test that needs luck is a test that fails on somebody else's machine. Here nothing is lucky: the clock moves only
//! when the driver moves it, every delay comes from the seed, and faults happen when the script says. A failing seed is
//! a bug report.
//!
//! ```text
//!   rank 0   SimLink(0,1) ---- wire 0->1: bandwidth, then latency and jitter; first in, first out ----> SimLink(1,0)
//!                         <--- wire 1->0 ---------------------------------------------------------
//!            both directions also carry *post*: credits for what was read, notices, goodbyes. Post pays latency but
//!            no bandwidth and doesn't queue behind frames, so a notice may overtake them. A goodbye is told only once
//!            the last frame is there.
//! ```
//!
//! * [`SimNetwork`] is the shared handle: it makes links, owns the clock and the agenda of what will happen, and takes
//!   [`Fault`]s.
//! * [`Port`]s are what wires share, and [`SimCluster`] describes hosts whose ranks share adapters.
//! * [`SimLink`] is one rank's end of a link to one peer.
//! * [`run`] polls ranks until none moves, lets the clock jump to the next event or deadline, and reports ranks that
//!   will wait for ever, with a trace of the last events.
//!
//! Nothing exists for a pair that has not spoken but a small record, so a thousand ranks that each talk to a few peers
//! cost memory for what is in flight.

mod cluster;
mod control;
mod drive;
mod fault;
mod happen;
mod link;
mod network;
mod options;
mod ports;
mod random;
mod state;
mod trace;
mod wire;

#[cfg(test)]
mod tests;

pub use cluster::{ClusterPorts, SimCluster};
pub use control::SimControl;
pub use drive::{RankStep, RunError, RunErrorKind, run};
pub use fault::Fault;
pub use link::SimLink;
pub use network::SimNetwork;
pub use options::{Jitter, LinkProfile, SimOptions};
pub use ports::{Port, PortUse};
pub use random::Random;
