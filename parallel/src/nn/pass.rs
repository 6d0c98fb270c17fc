//! What all layers of a model share in one forward pass.

use std::ops::Range;
use std::sync::Arc;

use super::{Attention, CausalAttention, Placement, Rotation};
use crate::error::Result;
use crate::tensor::TensorParallel;

/// What is computed again in the backward pass rather than kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Recompute {
    /// Nothing.
    #[default]
    Nothing,
    /// Attention between the projections, which has most of the memory and few of the operations.
    Attention,
    /// Whole blocks: only their inputs are kept.
    Blocks,
}

/// One forward pass, as layers see it.
#[derive(Clone)]
pub struct Pass {
    /// Where the batch stands.
    pub placement: Arc<Placement>,
    /// Which of the placement's positions this rank has between layers.
    pub here: Range<usize>,
    /// How heads are turned, if they are.
    pub rotation: Option<Rotation>,
    /// How heads attend.
    pub attention: Arc<dyn Attention>,
    /// What is computed again.
    pub recompute: Recompute,
}

impl Pass {
    /// A pass with plain causal attention, no rotation, and nothing computed again.
    ///
    /// # Errors
    /// The sequence is to be cut, and can't be into equal parts.
    pub fn new(placement: Placement, tp: &TensorParallel) -> Result<Pass> {
        let here = tp.positions_here(placement.positions.len())?;
        Ok(Pass {
            placement: Arc::new(placement),
            here,
            rotation: None,
            attention: Arc::new(CausalAttention),
            recompute: Recompute::Nothing,
        })
    }

    /// The positions that this rank has between layers.
    #[must_use]
    pub fn positions(&self) -> &[u32] {
        &self.placement.positions[self.here.clone()]
    }
}
