//! Collectives on candle's tensors, and what they have moved.
//!
//! Only bytes, element types and lengths cross to the communicator.

mod elements;
mod tensors;
mod traffic;

pub(crate) use elements::{Elements, Started, add_in_order};
pub use tensors::Group;
pub use traffic::{Traffic, TrafficEntry};
