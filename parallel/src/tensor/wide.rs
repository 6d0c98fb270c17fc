//! The precision in which sums of many numbers are computed: single at least.

use candle_core::{DType, Tensor};

use crate::error::Result;

/// A tensor's elements without a graph, halves in single precision.
pub(crate) fn wide(tensor: &Tensor) -> Result<Tensor> {
    Ok(match tensor.dtype() {
        DType::F16 | DType::BF16 => tensor.detach().to_dtype(DType::F32)?,
        _ => tensor.detach(),
    })
}

/// Back to a type, in row-major order.
pub(crate) fn narrow_to(dtype: DType, tensor: &Tensor) -> Result<Tensor> {
    Ok(tensor.to_dtype(dtype)?.contiguous()?)
}
