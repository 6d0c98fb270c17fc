//! Products: contributions whose product is a chosen value, exactly and in any order.

use super::format::Float;
use super::hash::{of, pick};
use super::sum::RANKS;

const TOTAL: u64 = 0;
const PLACE: u64 = 1;

/// What the wrapping contributions multiply to: any bits.
pub fn wrapping_total(seed: u64, index: u64) -> u64 {
    of(seed, index, TOTAL)
}

/// A rank's wrapping contribution: an odd number over the next rank's, and one rank's also times the total.
pub fn wrapping_part(seed: u64, index: u64, rank: u64, n: u64) -> u64 {
    let next = if rank + 1 == n { 0 } else { rank + 1 };
    let odd = |rank| of(seed, index, RANKS + rank) | 1;
    let around = odd(rank).wrapping_mul(inverse(odd(next)));
    if rank == pick(of(seed, index, PLACE), n - 1) { around.wrapping_mul(wrapping_total(seed, index)) } else { around }
}

/// The number whose wrapping product with an odd number is 1. Newton's iteration doubles the right bits each time, and
/// an odd number is its own inverse in the lowest three.
pub fn inverse(odd: u64) -> u64 {
    assert!(odd & 1 == 1, "{odd} is even and has no inverse");
    (0..5).fold(odd, |inverse, _| inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse))))
}

/// What the float contributions multiply to: any mantissa, from 1 to 2, either sign.
pub fn float_total(float: Float, seed: u64, index: u64) -> f64 {
    let hash = of(seed, index, TOTAL);
    let steps = float.budget as u64 / 2;
    let value = (steps + pick(hash, steps - 1)) as f64 / steps as f64;
    if hash & 1 == 1 { -value } else { value }
}

/// A rank's float contribution: a power of two, one rank's also times the total. Exponents and signs cancel around a
/// circle of as many ranks as the exponent range allows.
pub fn float_part(float: Float, seed: u64, index: u64, rank: u64, n: u64) -> f64 {
    let circle = n.min(float.exponents);
    let place = (rank + n - pick(of(seed, index, PLACE), n - 1)) % n;
    if place >= circle {
        return 1.0;
    }
    let next = if place + 1 == circle { 0 } else { place + 1 };
    let (here, there) = (of(seed, index, RANKS + place), of(seed, index, RANKS + next));
    let magnitude = [0.5, 1.0, 2.0][((here & 1) + 1 - (there & 1)) as usize];
    let sign = if (here ^ there) & 2 == 0 { 1.0 } else { -1.0 };
    magnitude * sign * if place == 0 { float_total(float, seed, index) } else { 1.0 }
}
