//! What a pipeline asks of a stage.

use candle_core::DType;

use crate::error::Result;
use crate::value::{Spread, Value};

/// How activations look that pass between two stages, on one rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wire {
    /// The sizes of their dimensions.
    pub dims: Vec<usize>,
    /// The type of their elements.
    pub dtype: DType,
    /// What they are along the other axes.
    pub spread: Spread,
}

/// A stage of a model, with its micro-batches.
pub trait Stage: Send + Sync {
    /// How the activations of a micro-batch look that come into this stage; not asked of the first one.
    ///
    /// # Errors
    /// There is no such micro-batch.
    fn incoming(&self, micro_batch: u32) -> Result<Wire>;

    /// How the activations of a micro-batch look that leave this stage; not asked of the last one.
    ///
    /// # Errors
    /// There is no such micro-batch.
    fn outgoing(&self, micro_batch: u32) -> Result<Wire>;

    /// The forward pass of a micro-batch, of `input` if this isn't the first stage. The last stage gives a scalar, the
    /// micro-batch's part of the loss, whose gradient is 1.
    ///
    /// # Errors
    /// The pass fails.
    fn forward(&self, micro_batch: u32, input: Option<&Value>) -> Result<Value>;
}
