//! Verbs, as owned values: each frees what it holds, after all that was made from it.
//!
//! The control functions come from [`sys`]. A forked child has copies of the parent's handles, and freeing one there would
//! free the parent's: a child leaves them alone (`forks.rs`).

mod completion;
mod context;
mod memory;
mod queue_pair;
pub(crate) mod sys;

pub(crate) use completion::{Completion, CompletionQueue};
pub(crate) use context::{AsyncEvent, Context, Domain, Limits, Reads, device_names};
pub(crate) use memory::{Access, Registration};
pub(crate) use queue_pair::{Attributes, Destination, Piece, QueuePair, Write};
