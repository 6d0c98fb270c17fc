//! A seeded stream of numbers: SplitMix64, so that a run is repeated by its seed on any machine.
//!
//! Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. Eight bytes of state make it
//! cheap to give every directed pair a stream of its own, whose numbers don't depend on what other pairs do.

/// A stream of pseudorandom numbers that depends on its seed alone. Not for secrets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The stream that belongs to `(seed, from, to)`, apart from those of other pairs.
    pub(super) fn of_pair(seed: u64, from: usize, to: usize) -> Random {
        let mut mixer = Random(seed);
        let seed = mixer.next() ^ from as u64;
        let mut mixer = Random(seed);
        Random(mixer.next() ^ to as u64)
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait, reason = "an endless stream, not an iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..limit`, each as likely as the others to within `limit / 2^64`.
    ///
    /// # Panics
    ///
    /// Where `limit` is zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        assert!(limit > 0, "no number is below zero");
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// True in `per_mille` of a thousand cases.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < u64::from(per_mille)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_numbers_of_seed_zero_are_those_of_the_published_generator() {
        let mut random = Random::new(0);
        assert_eq!(random.next(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.next(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn below_covers_its_range_and_stays_in_it() {
        let mut random = Random::new(3);
        let mut seen = [0; 7];
        (0..7000).for_each(|_| seen[random.below(7) as usize] += 1);
        assert!(seen.iter().all(|&times| 800 < times && times < 1200), "{seen:?}");
    }

    #[test]
    fn pairs_have_streams_of_their_own() {
        let first = |from, to| Random::of_pair(9, from, to).next();
        assert_ne!(first(0, 1), first(1, 0));
        assert_ne!(first(0, 1), first(0, 2));
        assert_eq!(first(3, 4), first(3, 4));
    }
}
