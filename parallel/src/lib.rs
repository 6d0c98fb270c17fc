//! Parallel training on paceline's collectives: data, sharded, tensor, sequence and pipeline parallel, in any combination,
//! equal to one process.
//!
//! Without the feature `candle` there is what needs no tensors: the layout of ranks, pipeline schedules and their prices.

#![forbid(unsafe_code)]

#[cfg(feature = "candle")]
mod agreement;
#[cfg(feature = "candle")]
pub mod autograd;
#[cfg(feature = "candle")]
pub mod checkpoint;
#[cfg(feature = "candle")]
pub mod data;
mod error;
#[cfg(feature = "candle")]
mod group;
pub mod mesh;
#[cfg(feature = "candle")]
pub mod nn;
#[cfg(feature = "candle")]
pub mod optimizer;
#[cfg(feature = "candle")]
pub mod parameter;
pub mod pipeline;
#[cfg(feature = "candle")]
pub mod precision;
#[cfg(feature = "candle")]
pub mod random;
#[cfg(feature = "candle")]
pub mod samples;
#[cfg(feature = "candle")]
pub mod sharded;
#[cfg(feature = "candle")]
pub mod state;
#[cfg(feature = "candle")]
mod stretch;
#[cfg(feature = "candle")]
pub mod tensor;
#[cfg(feature = "candle")]
pub mod train;
#[cfg(feature = "candle")]
pub mod value;

pub use error::{Error, Result};
#[cfg(feature = "candle")]
pub use group::{Group, Traffic, TrafficEntry};
