//! Sums and averages: contributions that add up to a chosen total, exactly and in any order.

use super::hash::{of, pick};

const TOTAL: u64 = 0;
const PLACE: u64 = 1;
/// The first of the lanes that belong to single ranks.
pub const RANKS: u64 = 2;

/// What the wrapping contributions to an element add up to.
pub fn wrapping_total(seed: u64, index: u64) -> u64 {
    of(seed, index, TOTAL)
}

/// A rank's wrapping contribution: any bits at all. Around the circle of ranks everything but the total cancels.
pub fn wrapping_part(seed: u64, index: u64, rank: u64, n: u64) -> u64 {
    let next = if rank + 1 == n { 0 } else { rank + 1 };
    let around = of(seed, index, RANKS + rank).wrapping_sub(of(seed, index, RANKS + next));
    if rank == pick(of(seed, index, PLACE), n - 1) { around.wrapping_add(wrapping_total(seed, index)) } else { around }
}

/// What the bounded contributions add up to: at most half the budget, either sign.
pub fn bounded_total(budget: i64, seed: u64, index: u64) -> i64 {
    let half = budget / 2;
    pick(of(seed, index, TOTAL), 2 * half as u64) as i64 - half
}

/// A rank's bounded contribution: the magnitudes of all of them together stay within the budget.
///
/// Half of the budget goes to the total, which one rank adds. The rest is shared by differences around a circle of ranks,
/// which cancel; the circle is made of as many ranks as the budget allows and starts at another rank for each element.
pub fn bounded_part(budget: i64, seed: u64, index: u64, rank: u64, n: u64) -> i64 {
    let circle = n.min(budget as u64 / 4);
    let place = (rank + n - pick(of(seed, index, PLACE), n - 1)) % n;
    if place >= circle {
        return 0;
    }
    let most = budget as u64 / 2 / circle;
    let next = if place + 1 == circle { 0 } else { place + 1 };
    let step = |place| pick(of(seed, index, RANKS + place), most) as i64;
    step(place) - step(next) + if place == 0 { bounded_total(budget, seed, index) } else { 0 }
}

/// What the contributions to an average add up to: from 0 to `most`.
pub fn positive_total(most: u64, seed: u64, index: u64) -> u64 {
    pick(of(seed, index, TOTAL), most)
}

/// A rank's contribution to an average: never negative, so that no order of additions overflows or cancels.
///
/// The total is split evenly over pairs of ranks, and at a random point within each pair.
pub fn positive_part(most: u64, seed: u64, index: u64, rank: u64, n: u64) -> u64 {
    let place = (rank + pick(of(seed, index, PLACE), n - 1)) % n;
    let (pair, pairs) = (place / 2, n.div_ceil(2));
    let total = u128::from(positive_total(most, seed, index));
    let until = |pair: u64| (total * u128::from(pair) / u128::from(pairs)) as u64;
    let share = until(pair + 1) - until(pair);
    let first = pick(of(seed, index, RANKS + pair), share);
    match (place % 2, place + 1 == n) {
        (0, true) => share,
        (0, false) => first,
        _ => share - first,
    }
}

/// The power of two, from -2 to 2, that an element's float contributions are scaled by.
pub fn scale(seed: u64, index: u64) -> f64 {
    [0.25, 0.5, 1.0, 2.0, 4.0][(of(seed, index, PLACE) % 5) as usize]
}

/// Whether an element's contributions to an average are negative.
pub fn negative(seed: u64, index: u64) -> bool {
    of(seed, index, TOTAL) & 1 == 1
}
