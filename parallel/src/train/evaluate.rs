//! The loss of samples that aren't trained on.

use candle_core::DType;
use paceline_comm::ReduceOp;

use super::batch::Batch;
use super::stages::Work;
use super::trainer::Trainer;
use crate::data::Progress;
use crate::error::{Doing, Error, Result};
use crate::mesh::Axis;
use crate::nn::Phase;

/// What an evaluation came to, on all ranks alike.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Evaluation {
    /// The mean loss over all tokens of all ranks.
    pub loss: f64,
    /// How many tokens those are.
    pub tokens: u64,
}

impl Trainer {
    /// The loss of some micro-batches, without gradients and without dropout, between two steps. All ranks along `pp` and `tp`
    /// give the same ones, and ranks along `dp` and `fsdp` equally many, of any number: whoever has fewer gives some without
    /// targets.
    ///
    /// # Errors
    /// Ranks give different numbers of micro-batches, a pass fails, no rank has a token with a target, or a rank is lost.
    pub fn evaluate(&self, mut batches: Vec<Batch>) -> Result<Evaluation> {
        let count = batches.len() as u64;
        let tokens = batches.iter().map(Batch::valid_tokens).sum::<Result<u64>>()?;
        let progress = Progress::agree(&self.data_group, count, tokens)?;
        if progress.tokens() == 0 {
            return Err(Error::invalid("no rank has a token with a target to evaluate"));
        }
        let counts = progress.micro_batches();
        if counts.iter().any(|other| *other != count) {
            return Err(Error::invalid(format!(
                "the ranks along the data axes evaluate {counts:?} micro-batches: they must be equally many, so give \
                 some without targets"
            )));
        }
        batches.iter_mut().for_each(|batch| batch.placement.phase = Phase::Evaluation);
        *self.stages.work.lock().expect("no panic while held") = Work { batches, scale: 1.0 };
        let mut sum = 0.0;
        for loss in self.pipeline.evaluate(count as u32)?.values() {
            sum += loss.to_dtype(DType::F64)?.to_scalar::<f64>()?;
        }
        // Values that were brought for the pass go, and the next step begins as if there had been none.
        self.state.publish()?;
        let mut loss = [if self.mesh.coordinate(Axis::Tp) == 0 { sum } else { 0.0 }];
        self.mesh.world().all_reduce_in_place(&mut loss, ReduceOp::Sum).doing(|| "adding up losses".to_owned())?;
        Ok(Evaluation { loss: loss[0] / progress.tokens() as f64, tokens: progress.tokens() })
    }
}
