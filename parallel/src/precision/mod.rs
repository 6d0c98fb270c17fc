//! Training in types of small range: a factor on the loss that keeps gradients from vanishing, found by trying.
//!
//! Whether gradients have overflowed is decided by all ranks together: one that skipped a step alone, or halved its scale
//! alone, would train another model from then on.

mod overflow;
mod scaler;

pub use overflow::{Overflow, overflowed};
pub use scaler::{LossScaler, LossScalerOptions};
