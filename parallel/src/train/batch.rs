//! A micro-batch of tokens.

use candle_core::{DType, Tensor};

use crate::error::{Error, Result};
use crate::nn::Placement;
use crate::tensor::CrossEntropyOptions;

/// A micro-batch, the same on all ranks that work on the same samples.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Tokens, of [samples, positions] and type u32.
    pub tokens: Tensor,
    /// The tokens that should come next, of the same shape and type i64; -100 where none is known.
    pub targets: Tensor,
    /// Which samples and positions they are.
    pub placement: Placement,
}

impl Batch {
    /// How many tokens have a target.
    ///
    /// # Errors
    /// The targets aren't of type i64.
    pub fn valid_tokens(&self) -> Result<u64> {
        if self.targets.dtype() != DType::I64 {
            return Err(Error::invalid(format!("targets of {:?} are given: they must be i64", self.targets.dtype())));
        }
        let targets = self.targets.flatten_all()?.to_vec1::<i64>()?;
        Ok(targets.iter().filter(|target| **target != CrossEntropyOptions::IGNORED).count() as u64)
    }

    /// Samples and positions.
    pub(super) fn dims(&self) -> (usize, usize) {
        (self.placement.samples.len(), self.placement.positions.len())
    }
}
