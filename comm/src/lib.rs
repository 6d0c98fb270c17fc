//! Collectives between ranks, from schedules that are proved before they run.
//!
//! Start with a [`Communicator`]. An algorithm is a function that writes a [`schedule`]; the table of them is
//! [`algorithm::ROWS`]; the engine runs the row that is chosen for a call.

extern crate alloc;

pub mod algorithm;
pub mod collective;
mod communicator;
#[cfg(feature = "cuda")]
pub mod cuda;
#[doc(hidden)]
pub mod device;
mod engine;
mod error;
pub mod reduce;
mod request;
pub mod schedule;
mod select;
mod sync;
pub mod topology;

pub use collective::Collective;
pub use communicator::{Buffer, Communicator, Group, Started, Work};
pub use error::{CallName, Error, ErrorKind, Result};
pub use paceline_transport::rendezvous::{ProfilePlace, Rendezvous, Setup, Token, UniqueId};
pub use paceline_transport::{Environment, LinkKind, Peer};
pub use reduce::{DataType, Element, ReduceOp};
pub use request::{Buffers, CallOptions, Counts, Request};
pub use select::{
    Circumstances, Crossover, Explanation, Measured, MeasuredChoices, Offer, Prices, Profile, ProfileError, ProfileHost,
};
