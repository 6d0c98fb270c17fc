//! Seeds and the numbers that follow from them.

use std::ops::Range;

/// The seeds to try: `usual` of them, `PACELINE_SEEDS` of them if that is set, or only `PACELINE_SEED`.
///
/// # Panics
///
/// If a variable is no number.
#[must_use]
pub fn seeds(usual: u64) -> Range<u64> {
    let number = |name: &str| {
        std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
    };
    match (number("PACELINE_SEED"), number("PACELINE_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(many)) => 0..many,
        (None, None) => 0..usual,
    }
}

/// Numbers from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of one case: of a seed, and of what tells the case from others with that seed.
    #[must_use]
    pub fn of(seed: u64, case: &str) -> Random {
        let mixed = case.bytes().fold(seed ^ 0x51_7c_c1_b7_27_22_0a_95, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        Random(mixed)
    }

    /// A number below `end`.
    ///
    /// # Panics
    ///
    /// If `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}
