//! For what a schedule is asked, and what each of them demands.

use thiserror::Error;

/// For what a schedule is asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    /// How many ranks.
    pub n_ranks: u32,
    /// How many micro-batches, over both directions if there are two.
    pub n_micro_batches: u32,
    /// How many stages a rank holds one behind the other. 1 unless the schedule is `interleaved`; V-shaped and mirrored
    /// schedules fix it themselves.
    pub n_chunks: u32,
    /// How many micro-batches `interleaved` takes through a stage before it turns to the rank's next. Others don't read
    /// it.
    pub group: u32,
}

impl Shape {
    /// One chunk for each rank, in groups as large as there are ranks.
    #[must_use]
    pub const fn new(n_ranks: u32, n_micro_batches: u32) -> Shape {
        Shape { n_ranks, n_micro_batches, n_chunks: 1, group: n_ranks }
    }

    /// The same with another number of chunks for each rank.
    #[must_use]
    pub const fn chunks(self, n_chunks: u32) -> Shape {
        Shape { n_chunks, ..self }
    }

    /// The same with other groups.
    #[must_use]
    pub const fn group(self, group: u32) -> Shape {
        Shape { group, ..self }
    }
}

/// Why a schedule doesn't fit a shape.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{name} does not fit {} ranks, {} micro-batches, {} chunks per rank: {why}", .shape.n_ranks, .shape.n_micro_batches, .shape.n_chunks)]
pub struct Misfit {
    /// The schedule.
    pub name: &'static str,
    /// For what it was asked.
    pub shape: Shape,
    /// What it demands, and what would do.
    pub why: String,
}

/// What every schedule with one chunk (or a number of its own) demands beyond ranks and micro-batches: nothing.
pub(super) fn any(shape: Shape) -> Result<(), String> {
    if shape.n_chunks == 1 { Ok(()) } else { Err("the number of chunks can be chosen for interleaved only".to_owned()) }
}
