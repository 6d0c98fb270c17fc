//! A schedule: what every rank does, in order.

use super::action::Step;
use super::placement::Placement;

/// What every rank does, in order.
///
/// Nothing is promised of the lists: [`check`](super::check()) says whether they are a schedule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// Which rank holds which stage.
    pub placement: Placement,
    /// How many micro-batches there are, over both directions if there are two.
    pub n_micro_batches: u32,
    /// The list of each rank.
    pub ranks: Vec<Vec<Step>>,
}

impl Schedule {
    /// How many ranks there are.
    #[must_use]
    pub fn n_ranks(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// How many stages the model has.
    #[must_use]
    pub fn n_stages(&self) -> u32 {
        self.placement.n_stages(self.n_ranks())
    }

    /// The rank that takes that micro-batch through that stage.
    ///
    /// # Panics
    ///
    /// When there is no such stage.
    #[must_use]
    pub fn rank_of(&self, stage: u32, micro_batch: u32) -> u32 {
        self.placement.rank_of(stage, micro_batch, self.n_ranks(), self.n_micro_batches)
    }

    /// The stages whose weights that rank holds, ascending.
    #[must_use]
    pub fn stages_of(&self, rank: u32) -> Vec<u32> {
        let last = self.n_micro_batches.saturating_sub(1);
        (0..self.n_stages()).filter(|&s| self.rank_of(s, 0) == rank || self.rank_of(s, last) == rank).collect()
    }
}
