//! Reductions and collectives on GPUs: the kernels' text, what their launches are given, how they are compiled, and where
//! what was compiled is kept.
//!
//! Nothing here needs CUDA or calls it, so that it is part of every build and `tests/cuda-sim` can prove the kernels on
//! machines without a GPU. `docs/cuda.md` says what there is, and `kernels/README.md` how ranks meet.
#![forbid(unsafe_code)]

mod arguments;
mod blocks;
mod board;
mod cache;
mod choice;
mod failure;
mod flags;
mod lent;
mod mail;
mod peers;
mod plan;
mod source;
#[cfg(any(feature = "cuda", test))]
mod straight;
#[cfg(any(feature = "cuda", test))]
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "without CUDA only tests use it"))]
pub(crate) mod streamed;

pub use arguments::Arguments;
pub use board::Board;
pub use cache::Cache;
pub use choice::Tuning;
pub use failure::{Failure, Reason, Waiting};
pub use flags::{FlagsArguments, FlagsPlan, Signals};
pub use lent::{Lending, LentArguments, LentPlan};
pub use mail::{Direction, MailArguments, MailPlan, Message, MessageKind};
pub use peers::PeerArguments;
pub use plan::{Call, Data, Grid, Plan, Site};
pub use source::{Architecture, Kernel, Key, Source, source};
#[cfg(feature = "cuda")]
pub(crate) use straight::Straight;
