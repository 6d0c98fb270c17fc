//! Which samples are trained on, in which order, by whom: a function of one counter.
//!
//! A run's position is the number of samples that all ranks together have begun with. Batches, ranks and micro-batches only
//! cut the stretch of positions that comes next, so that a run can go on with any number of ranks and sees each sample of an
//! epoch once.

mod batch;
mod order;

pub use batch::{Batch, Sampler};
pub use order::{Order, Shuffle};
