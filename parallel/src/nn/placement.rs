//! Where a batch stands: what positions and random numbers are taken from, so that they don't depend on the layout.

/// What a pass is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Phase {
    /// Gradients are wanted, and dropout drops.
    #[default]
    Training,
    /// Nothing is dropped.
    Evaluation,
}

/// Where the numbers of a batch of [samples, positions] stand in all of training. It is the same on all ranks that work on
/// the same tokens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The step of training.
    pub step: u64,
    /// Each sample's number among all of the step's, or of the data.
    pub samples: Vec<u64>,
    /// Each token's position in its whole sequence: not 0, 1, 2, .. where other ranks have other positions.
    pub positions: Vec<u32>,
    /// What the pass is for.
    pub phase: Phase,
}

impl Placement {
    /// Whole sequences of `len` tokens, for training.
    ///
    /// # Panics
    /// If there are more positions than 2^32.
    #[must_use]
    pub fn training(step: u64, samples: impl IntoIterator<Item = u64>, len: usize) -> Placement {
        let positions = 0..u32::try_from(len).expect("a sequence has fewer than 2^32 tokens");
        Placement {
            step,
            samples: samples.into_iter().collect(),
            positions: positions.collect(),
            phase: Phase::Training,
        }
    }

    /// Whole sequences of `len` tokens, for evaluation.
    ///
    /// # Panics
    /// If there are more positions than 2^32.
    #[must_use]
    pub fn evaluation(batch: usize, len: usize) -> Placement {
        Placement { phase: Phase::Evaluation, ..Placement::training(0, 0..batch as u64, len) }
    }
}
