//! What is sharded, and how it is sent.

use std::path::PathBuf;

use crate::data::Unused;
use crate::mesh::Axis;

/// What is sharded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// Master values and moments (ZeRO-1).
    Optimizer,
    /// Gradients, too (ZeRO-2).
    Gradients,
    /// Values, too (ZeRO-3, FSDP).
    Parameters,
}

/// Where the gradients of several micro-batches are added. Both give the same sums, but for rounding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accumulate {
    /// In the shard: each micro-batch's gradients are sent, and only 1/n of them is kept. Not in [`Stage::Optimizer`], which
    /// keeps gradients whole.
    InShard,
    /// In whole vectors, which are sent in the last micro-batch.
    InFull,
}

/// In which order the ranks' gradients are added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reduce {
    /// In whichever order is quickest: it may depend on where an element lies in its unit.
    Plain,
    /// As a binary tree over the ranks, like [`Ordered`](crate::data::hook::Ordered): the same bits whatever the units, the
    /// algorithm and the links. As many bytes, but among replicas, where n - 1 blocks come instead of 2 (n - 1) / n.
    Ordered,
}

/// In which type gradients are added, sent and kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precision {
    /// That of training: f32, or f64 for parameters of f64.
    OfTraining,
    /// That of the parameters: with 16 bits half the memory and half the bytes, and sums that are rounded to it.
    OfParameters,
}

/// How values are gathered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gather {
    /// In the parameters' type.
    Exact,
    /// In 8 bits, with an f32 scale for each block of so many elements: values are off by at most 1/254 of the largest
    /// magnitude in their block, plus rounding to their type. The master values remain exact.
    Int8 {
        /// Elements that share a scale.
        block: usize,
    },
}

/// Where master values and moments are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Offload {
    /// In host memory.
    Memory,
    /// In unnamed files in this directory, from where a thread reads each unit ahead.
    Files(PathBuf),
}

/// When [`Stage::Parameters`] lets a unit's values go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reshard {
    /// When another unit is needed; they are gathered again for the backward pass.
    AfterForward,
    /// When the unit's gradients are complete and another unit is needed: a gather less, and all values in memory.
    AfterBackward,
}

/// How the state is sharded.
#[derive(Clone, Debug)]
pub struct ShardedOptions {
    /// The axes along which the state is cut.
    pub shard_axes: Vec<Axis>,
    /// Further axes of the data, along which shards are the same: with both it is HSDP.
    pub replicate_axes: Vec<Axis>,
    /// What is sharded.
    pub stage: Stage,
    /// Where micro-batches' gradients are added.
    pub accumulate: Accumulate,
    /// In which order ranks' gradients are added.
    pub reduce: Reduce,
    /// In which type.
    pub gradients: Precision,
    /// How values are gathered.
    pub gather: Gather,
    /// Where master values and moments are kept.
    pub offload: Offload,
    /// When values go, in [`Stage::Parameters`].
    pub reshard: Reshard,
    /// How many units are gathered ahead, in [`Stage::Parameters`]: at most one more is here at a time.
    pub prefetch: usize,
    /// What happens with parameters that aren't used.
    pub unused: Unused,
}

impl Default for ShardedOptions {
    fn default() -> ShardedOptions {
        ShardedOptions {
            shard_axes: vec![Axis::Fsdp, Axis::Cp],
            replicate_axes: vec![Axis::Dp],
            stage: Stage::Parameters,
            accumulate: Accumulate::InShard,
            reduce: Reduce::Plain,
            gradients: Precision::OfTraining,
            gather: Gather::Exact,
            offload: Offload::Memory,
            reshard: Reshard::AfterForward,
            prefetch: 1,
            unused: Unused::Allowed,
        }
    }
}

impl ShardedOptions {
    /// Whether each micro-batch's gradients are sent.
    pub(super) fn sends_each_micro_batch(&self) -> bool {
        self.stage > Stage::Optimizer && self.accumulate == Accumulate::InShard
    }
}
