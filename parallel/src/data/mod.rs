//! Data parallel: every rank has all of the state and computes some of the samples; gradients are added in buckets while the
//! backward pass goes on.
//!
//! [`Replicated`] is the [`State`](crate::state::State); what its buckets go through on their way is a [`CommHook`].
//! [`Progress`] is what ranks tell each other before a step when they may run out of data at different times. See
//! `docs/data-parallel.md`.

mod adding;
mod agree;
mod axes;
mod buckets;
pub mod hook;
mod options;
mod overlap;
mod progress;
mod reducer;
mod replicated;

pub use adding::Adding;
pub(crate) use agree::same_parameters;
pub(crate) use axes::{Groups, summed_along};
pub use hook::{CommHook, Reduction};
pub use options::{ReplicatedOptions, Unused};
pub use overlap::Overlap;
pub use progress::Progress;
pub use replicated::Replicated;
