//! Sharded data parallel: every rank computes some of the samples and keeps a part of the state (ZeRO 1, 2 and 3, FSDP, HSDP).
//!
//! Parameters come in *units*, a layer each, say: flat vectors, cut into as many equal blocks as there are ranks, wherever
//! that falls in a parameter. Gradients of a unit are reduce-scattered and values all-gathered, so that a step sends what an
//! all-reduce would. [`Stage`] says what is sharded:
//!
//! | | values | gradients | master values and moments |
//! |---|---|---|---|
//! | [`Stage::Optimizer`] (ZeRO-1) | whole | whole, until they are reduced | 1/n |
//! | [`Stage::Gradients`] (ZeRO-2) | whole | a unit's at a time, then 1/n | 1/n |
//! | [`Stage::Parameters`] (ZeRO-3) | a unit's at a time, then 1/n | as above | 1/n |
//!
//! See `docs/data-parallel.md`.

mod build;
mod follow;
mod keeper;
mod memory;
mod offload;
mod options;
mod predict;
mod quantised;
mod reduce;
mod state;
mod sum;
mod unit;
mod values;

pub use memory::Memory;
pub use options::{Accumulate, Gather, Offload, Precision, Reduce, Reshard, ShardedOptions, Stage};
pub use state::Sharded;
pub use unit::{layer_of, units_by};
