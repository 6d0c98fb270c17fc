//! Which rank holds which stage.

use std::fmt::{self, Display, Formatter};

/// Which rank holds which stage. With 3 ranks:
///
/// ```text
///            loop 1    loop 2       v            mirrored
/// rank 0     0         0 3          0     5      0     2
/// rank 1     1         1 4          1   4        1     1
/// rank 2     2         2 5          2 3          2     0
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Placement {
    /// Around the ranks `n_chunks` times: stage `s` on rank `s mod p`.
    Loop {
        /// How many stages a rank holds.
        n_chunks: u32,
    },
    /// Down the ranks and back up: stages `r` and `2p - 1 - r` on rank `r`. The turn stays on one rank, as do the first
    /// stage and the last.
    V,
    /// Two copies of the model: the first half of the micro-batches runs down the ranks, stage `s` on rank `s`, and the
    /// other half up, stage `s` on rank `p - 1 - s`. Ranks `r` and `p - 1 - r` must add up their weights' gradients.
    Mirrored,
}

impl Placement {
    /// How many stages the model has on so many ranks.
    #[must_use]
    pub fn n_stages(self, n_ranks: u32) -> u32 {
        match self {
            Placement::Loop { n_chunks } => n_ranks.saturating_mul(n_chunks),
            Placement::V => n_ranks.saturating_mul(2),
            Placement::Mirrored => n_ranks,
        }
    }

    /// The rank that takes that micro-batch, one of `n_micro_batches`, through that stage.
    ///
    /// # Panics
    ///
    /// When the stage is not below [`n_stages`](Placement::n_stages).
    #[must_use]
    pub fn rank_of(self, stage: u32, micro_batch: u32, n_ranks: u32, n_micro_batches: u32) -> u32 {
        let n_stages = self.n_stages(n_ranks);
        assert!(stage < n_stages, "stage {stage} of {n_stages}");
        match self {
            Placement::Loop { .. } => stage % n_ranks,
            Placement::V => stage.min(n_stages - 1 - stage),
            Placement::Mirrored if micro_batch < n_micro_batches.div_ceil(2) => stage,
            Placement::Mirrored => n_ranks - 1 - stage,
        }
    }
}

impl Display for Placement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Placement::Loop { n_chunks } => write!(f, "loop {n_chunks}"),
            Placement::V => f.write_str("v"),
            Placement::Mirrored => f.write_str("mirrored"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_lie_as_drawn() {
        let (loops, mirrored) = (Placement::Loop { n_chunks: 2 }, Placement::Mirrored);
        let ranks = |placement: Placement, micro_batch| {
            (0..placement.n_stages(3)).map(|s| placement.rank_of(s, micro_batch, 3, 4)).collect::<Vec<_>>()
        };
        assert_eq!(ranks(loops, 0), [0, 1, 2, 0, 1, 2]);
        assert_eq!(ranks(Placement::V, 0), [0, 1, 2, 2, 1, 0]);
        assert_eq!((ranks(mirrored, 1), ranks(mirrored, 2)), (vec![0, 1, 2], vec![2, 1, 0]));
    }
}
