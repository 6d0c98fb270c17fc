//! Parallel training on paceline's collectives: data, sharded, tensor, sequence and pipeline parallel, in any combination,
//! equal to one process.
//!
//! Without the feature `candle` there is what needs no tensors: the layout of ranks, pipeline schedules and their prices.

#![forbid(unsafe_code)]

pub mod mesh;
pub mod pipeline;
