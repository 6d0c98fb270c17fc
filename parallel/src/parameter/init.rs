//! Initial values: the same for a logical element, however the tensor is cut.

use candle_core::{DType, Device, Tensor};

use super::part::Part;
use crate::error::Result;
use crate::random::Stream;

/// How a parameter begins.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Init {
    /// With zeros.
    Zeros,
    /// With ones.
    Ones,
    /// Normally distributed around 0.
    Normal {
        /// The standard deviation.
        std: f64,
    },
    /// Evenly from -bound to bound.
    Uniform {
        /// The bound.
        bound: f64,
    },
}

impl Init {
    /// The initial value of a part.
    ///
    /// # Errors
    /// candle has no such type of element.
    pub fn tensor(self, part: &Part, stream: Stream, dtype: DType) -> Result<Tensor> {
        let number = |index: u64| match self {
            Init::Zeros => 0.0,
            Init::Ones => 1.0,
            Init::Normal { std } => std * stream.normal(index),
            Init::Uniform { bound } => bound * (2.0 * stream.uniform(index) - 1.0),
        };
        let numbers: Vec<f64> = part.indices().map(|index| index.map_or(0.0, number)).collect();
        Ok(Tensor::from_vec(numbers, part.shape(), &Device::Cpu)?.to_dtype(dtype)?)
    }
}
