//! An algorithm's output: one rank's rounds of steps over chunks. Pure data; no bytes, clocks or peers.
//!
//! Three rules make a set of programs, one for each rank, provable:
//!
//! 1. every receive names its sender, and what one rank sends another arrives in the order sent;
//! 2. the steps of a round touch disjoint chunks (two reads may overlap);
//! 3. a round ends when its own steps have ended, on this rank only: rounds are not barriers.

#![forbid(unsafe_code)]

pub mod check;
pub mod cost;
mod groups;
mod hash;
mod placed;
mod program;
pub(crate) mod run;
mod span;
mod step;
pub mod text;
mod view;

pub use groups::{Groups, Level};
pub use program::Program;
pub use span::{Buffer, Span, input, output, scratch};
pub use step::{Rank, Step};
pub use view::View;
