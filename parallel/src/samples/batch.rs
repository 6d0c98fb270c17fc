//! The positions of a batch, cut over ranks and micro-batches.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::order::Order;
use crate::error::{Error, Result};

/// Where a run stands in an order of samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sampler {
    order: Order,
    position: u64,
}

/// The positions of one step, of all ranks together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    order: Order,
    positions: Range<u64>,
}

impl Sampler {
    /// A run that begins at a position: 0, or a checkpoint's.
    #[must_use]
    pub fn new(order: Order, position: u64) -> Sampler {
        Sampler { order, position }
    }

    /// How many samples all ranks together have begun with.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The order.
    #[must_use]
    pub fn order(&self) -> &Order {
        &self.order
    }

    /// The next `samples` samples, which count as begun with. They may run into the next epoch.
    #[must_use]
    pub fn next_batch(&mut self, samples: u64) -> Batch {
        let positions = self.position..self.position + samples;
        self.position = positions.end;
        Batch { order: self.order, positions }
    }

    /// As [`Sampler::next_batch`], but not beyond this epoch: the last batch is smaller, and never empty unless it is asked for.
    #[must_use]
    pub fn next_batch_of_epoch(&mut self, samples: u64) -> Batch {
        let left = self.order.samples() - self.position % self.order.samples();
        self.next_batch(samples.min(left))
    }
}

impl Batch {
    /// The positions of all ranks together.
    #[must_use]
    pub fn positions(&self) -> Range<u64> {
        self.positions.clone()
    }

    /// The samples of one rank of `ranks` that cut the batch: nearly the same number for each, in the batch's order.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn of_rank(&self, rank: usize, ranks: usize) -> Vec<u64> {
        assert!(rank < ranks, "rank {rank} of {ranks}");
        let len = u128::from(self.positions.end - self.positions.start);
        let cut = |rank: usize| self.positions.start + (len * rank as u128 / ranks as u128) as u64;
        (cut(rank)..cut(rank + 1)).map(|position| self.order.sample(position)).collect()
    }

    /// One rank's samples, in micro-batches of so many; the last one may be smaller.
    ///
    /// # Errors
    /// A micro-batch has no samples.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn micro_batches(&self, rank: usize, ranks: usize, samples: usize) -> Result<Vec<Vec<u64>>> {
        if samples == 0 {
            return Err(Error::invalid("micro-batches of no samples"));
        }
        Ok(self.of_rank(rank, ranks).chunks(samples).map(<[u64]>::to_vec).collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::samples::Shuffle;

    proptest! {
        /// A run that is stopped and goes on with other numbers of ranks and other batches sees what one rank would see.
        #[test]
        fn each_sample_is_seen_once_however_the_run_is_cut(
            samples in 1u64..60, seed in any::<u64>(),
            legs in prop::collection::vec((1usize..6, 1u64..20, 1usize..4, 1usize..4), 1..8),
        ) {
            let order = Order::new(samples, seed, Shuffle::EachEpoch).unwrap();
            let (mut position, mut seen) = (0, Vec::new());
            for (ranks, batch, steps, micro) in legs {
                let mut sampler: Sampler =
                    serde_json::from_str(&serde_json::to_string(&Sampler::new(order, position)).unwrap()).unwrap();
                for _ in 0..steps {
                    let batch = sampler.next_batch(batch);
                    let shares: Vec<Vec<u64>> = (0..ranks).map(|rank| batch.of_rank(rank, ranks)).collect();
                    let lens = || shares.iter().map(Vec::len);
                    prop_assert!(lens().max().unwrap() - lens().min().unwrap() <= 1);
                    for (rank, share) in shares.iter().enumerate() {
                        let micro_batches = batch.micro_batches(rank, ranks, micro).unwrap();
                        prop_assert!(micro_batches.iter().all(|micro_batch| (1..=micro).contains(&micro_batch.len())));
                        prop_assert_eq!(&micro_batches.concat(), share);
                    }
                    seen.extend(shares.concat());
                }
                position = sampler.position();
            }
            let want: Vec<u64> = (0..position).map(|position| order.sample(position)).collect();
            prop_assert_eq!(&seen, &want);
            for epoch in seen.chunks_exact(samples as usize) {
                let mut epoch = epoch.to_vec();
                epoch.sort_unstable();
                prop_assert_eq!(epoch, (0..samples).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn an_epoch_may_end_with_a_smaller_batch() {
        let mut sampler = Sampler::new(Order::new(10, 0, Shuffle::Never).unwrap(), 0);
        let lens: Vec<u64> =
            (0..4).map(|_| sampler.next_batch_of_epoch(4).positions()).map(|at| at.end - at.start).collect();
        assert_eq!((lens, sampler.order().epoch(sampler.position())), (vec![4, 4, 2, 4], 1));
        assert!(sampler.next_batch(4).micro_batches(0, 1, 0).is_err());
    }
}
