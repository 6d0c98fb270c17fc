//! The sample at a position: a permutation of the samples for each epoch, computed where it is asked for.
//!
//! A Feistel network of random functions is a permutation of the numbers of an even number of bits (Luby & Rackoff, 1988);
//! applied again and again until the result is below the number of samples, it is one of these (cycle walking: Black &
//! Rogaway, 2002). No table, no state, and each number costs fewer than four networks on average.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::random::Stream;

/// Four are enough for a permutation that can't be told from random by few looks; more is cheap.
const ROUNDS: u64 = 6;

/// Whether samples are taken as they lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Shuffle {
    /// In another random order in each epoch.
    #[default]
    EachEpoch,
    /// As they lie.
    Never,
}

/// The order of samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Order {
    samples: u64,
    seed: u64,
    shuffle: Shuffle,
}

impl Order {
    /// An order of so many samples.
    ///
    /// # Errors
    /// There are none, or more than 2^62.
    pub fn new(samples: u64, seed: u64, shuffle: Shuffle) -> Result<Order> {
        if !(1..=1 << 62).contains(&samples) {
            return Err(Error::invalid(format!("{samples} samples can't be ordered")));
        }
        Ok(Order { samples, seed, shuffle })
    }

    /// How many samples there are.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The epoch to which a position belongs.
    #[must_use]
    pub fn epoch(&self, position: u64) -> u64 {
        position / self.samples
    }

    /// The sample at a position.
    #[must_use]
    pub fn sample(&self, position: u64) -> u64 {
        let place = position % self.samples;
        match self.shuffle {
            Shuffle::Never => place,
            Shuffle::EachEpoch => self.shuffled(self.epoch(position), place),
        }
    }

    fn shuffled(&self, epoch: u64, place: u64) -> u64 {
        let stream = Stream::new(self.seed, "order of samples").at(epoch);
        let rounds: [Stream; ROUNDS as usize] = std::array::from_fn(|round| stream.at(round as u64));
        let half_bits = (64 - (self.samples - 1).leading_zeros()).div_ceil(2);
        let mut number = place;
        // A permutation of all numbers comes back to where it began, which is below the number of samples.
        loop {
            number = network(&rounds, half_bits, number);
            if number < self.samples {
                return number;
            }
        }
    }
}

/// A permutation of the numbers of `2 * half_bits` bits.
fn network(rounds: &[Stream], half_bits: u32, number: u64) -> u64 {
    let end = 1u64 << half_bits;
    let (mut left, mut right) = (number >> half_bits, number & (end - 1));
    for round in rounds {
        (left, right) = (right, left ^ round.below(right, end));
    }
    left << half_bits | right
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_epoch_has_each_sample_once(samples in 1u64..300, seed in any::<u64>(), epoch in 0u64..5) {
            for shuffle in [Shuffle::EachEpoch, Shuffle::Never] {
                let order = Order::new(samples, seed, shuffle).unwrap();
                let seen: BTreeSet<u64> = (epoch * samples..(epoch + 1) * samples).map(|at| order.sample(at)).collect();
                prop_assert_eq!(seen, (0..samples).collect());
            }
        }
    }

    #[test]
    fn large_sets_are_ordered_without_a_table() {
        let order = Order::new((1 << 62) - 5, 3, Shuffle::EachEpoch).unwrap();
        let seen: BTreeSet<u64> = (0..1000).map(|at| order.sample(at)).collect();
        assert!(seen.len() == 1000 && seen.iter().all(|sample| *sample < order.samples()));
        assert!(Order::new(0, 3, Shuffle::Never).is_err());
    }

    /// For a random permutation of n, one place is expected to stay, and neighbours to be n/3 apart.
    #[test]
    fn the_order_looks_random() {
        let n = 1000;
        let order = Order::new(n, 11, Shuffle::EachEpoch).unwrap();
        for epoch in 0..4 {
            let samples: Vec<u64> = (0..n).map(|place| order.sample(epoch * n + place)).collect();
            let stay = samples.iter().enumerate().filter(|(place, sample)| *place as u64 == **sample).count();
            let apart = samples.windows(2).map(|pair| pair[0].abs_diff(pair[1]) as f64).sum::<f64>() / n as f64;
            assert!(stay < 10 && (apart - 333.0).abs() < 40.0, "{stay} stay, neighbours are {apart} apart");
            let next: Vec<u64> = (0..n).map(|place| order.sample((epoch + 1) * n + place)).collect();
            assert!(samples.iter().zip(&next).filter(|(one, other)| one == other).count() < 10);
        }
    }
}
