//! Either norm.

use super::{LayerNorm, NormKind, RmsNorm};
use crate::error::Result;
use crate::parameter::Builder;
use crate::tensor::TensorParallel;
use crate::value::Value;

/// A norm over the last dimension.
pub enum Norm {
    /// By the root mean square.
    Rms(RmsNorm),
    /// By mean and variance.
    Layer(LayerNorm),
}

impl Norm {
    /// Makes the norm's parameters.
    ///
    /// # Errors
    /// There are such parameters.
    pub fn new(kind: NormKind, builder: &Builder, width: usize, epsilon: f64, tp: &TensorParallel) -> Result<Norm> {
        Ok(match kind {
            NormKind::Rms => Norm::Rms(RmsNorm::new(builder, width, epsilon, tp)?),
            NormKind::Layer => Norm::Layer(LayerNorm::new(builder, width, epsilon, tp)?),
        })
    }

    /// The input, normed: of the same shape and kind.
    ///
    /// # Errors
    /// The input is of a kind for which the parameters' gradients would be wrong, or of another width.
    #[track_caller]
    pub fn forward(&self, input: &Value) -> Result<Value> {
        match self {
            Norm::Rms(norm) => norm.forward(input),
            Norm::Layer(norm) => norm.forward(input),
        }
    }
}
