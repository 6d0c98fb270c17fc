//! Seeds and the numbers that follow from them.

use std::ops::Range;

use crate::{Random, mix};

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

/// The numbers of one case: of a seed, and of what tells the case from others with that seed.
#[must_use]
pub fn random(seed: u64, case: &str) -> Random {
    Random::new(case.bytes().fold(mix(seed), |hash, byte| mix(hash ^ u64::from(byte))))
}
