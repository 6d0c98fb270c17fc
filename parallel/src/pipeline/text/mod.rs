//! Schedules as text: a line for each rank; and back.
//!
//! ```text
//! placement v micro_batches 2     # this line may be left out
//! 0F0, 0F1, 3F0, 3B0, 3F1, 3B1, 0B0, 0B1
//! 1F0, 1F1, 2F0, 2F1, 2B0, 2B1, 1B0, 1B1
//! ```
//!
//! Actions are written as [`Step`](super::Step) says, with commas between them. Blanks, blank lines and what follows a
//! `#` don't count, nor do empty places between commas, as other programs write for idle time. `-` is a rank that does
//! nothing. Placements are `loop 2` (two stages for each rank), `v` and `mirrored`. Without a header there are as many
//! micro-batches and stages as the table names, placed in a loop.

mod parse;
#[cfg(test)]
mod tests;
mod write;

pub use parse::parse;
pub use write::write;
