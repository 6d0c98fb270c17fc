//! What the ranks have before them in a step: who still has data, and how many tokens there are in all.

use paceline_comm::Collective;

use crate::error::{Doing, Error, Result};
use crate::group::Group;

/// What each rank of the data axes has before it in a step.
///
/// At the end of an epoch some ranks run out of data before others. A rank that has none goes on as long as anybody has some
/// ([`Progress::anybody_has_data`]): it calls `finish_gradients`, where it takes part with zeros, and steps as all do. Losses
/// are sums over tokens, so that dividing by [`Progress::tokens`] gives the mean, however the tokens are distributed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    micro_batches: Vec<u64>,
    tokens: u64,
}

impl Progress {
    /// Tells the other ranks how many micro-batches and valid tokens this one has in the step, and learns theirs. The group
    /// runs along all axes along which data differs.
    ///
    /// # Errors
    /// The collective fails.
    pub fn agree(group: &Group, micro_batches: u64, tokens: u64) -> Result<Progress> {
        let mut all = vec![0; 2 * group.size()];
        group.count(Collective::AllGather, 16 * group.size());
        let gathered = group.comm().all_gather(&[micro_batches, tokens], &mut all);
        gathered.doing(|| "agreeing on who has data".to_owned())?;
        let tokens = all.iter().skip(1).step_by(2).try_fold(0u64, |sum, tokens| sum.checked_add(*tokens));
        let tokens = tokens.ok_or_else(|| Error::invalid("the ranks have more tokens than 64 bits can count"))?;
        Ok(Progress { micro_batches: all.into_iter().step_by(2).collect(), tokens })
    }

    /// Whether any rank has a micro-batch. When none has, the epoch is over everywhere.
    #[must_use]
    pub fn anybody_has_data(&self) -> bool {
        self.most_micro_batches() > 0
    }

    /// Valid tokens of all ranks together: what the step's gradients are to be divided by.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// How many micro-batches each rank has.
    #[must_use]
    pub fn micro_batches(&self) -> &[u64] {
        &self.micro_batches
    }

    /// How many micro-batches the rank has that has most.
    #[must_use]
    pub fn most_micro_batches(&self) -> u64 {
        self.micro_batches.iter().copied().max().unwrap_or(0)
    }

    /// The first rank that has most.
    #[must_use]
    pub fn busiest(&self) -> usize {
        let most = self.most_micro_batches();
        self.micro_batches.iter().position(|has| *has == most).unwrap_or(0)
    }
}
