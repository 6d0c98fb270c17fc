//! Minima and maxima: one rank holds the extreme, every other rank something that does not exceed it.
//!
//! Values are drawn as keys, 0 for the lowest value of the type and `span` for the highest, in the order of the numbers.
//! Floats take all finite numbers but minus zero, which no order tells from zero.

use super::format::{Family, Format};
use super::hash::{of, pick};
use super::sum::RANKS;

const EXTREME: u64 = 0;
const PLACE: u64 = 1;

/// Which end of the order wins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The smallest.
    Min,
    /// The largest.
    Max,
}

/// The bits of the extreme.
pub fn total(format: Format, seed: u64, index: u64) -> u64 {
    bits(format, extreme(format, seed, index))
}

/// The bits of a rank's value.
pub fn part(format: Format, end: End, seed: u64, index: u64, rank: u64, n: u64) -> u64 {
    let extreme = extreme(format, seed, index);
    if rank == pick(of(seed, index, PLACE), n - 1) {
        return bits(format, extreme);
    }
    let hash = of(seed, index, RANKS + rank);
    bits(
        format,
        match end {
            End::Max => extreme - pick(hash, extreme),
            End::Min => extreme + pick(hash, span(format) - extreme),
        },
    )
}

fn extreme(format: Format, seed: u64, index: u64) -> u64 {
    pick(of(seed, index, EXTREME), span(format))
}

fn span(format: Format) -> u64 {
    match format.family {
        Family::Integer { .. } => format.mask(),
        Family::Float(float) => 2 * float.largest,
    }
}

fn bits(format: Format, key: u64) -> u64 {
    match format.family {
        Family::Integer { signed: false } => key,
        Family::Integer { signed: true } => key ^ format.sign(),
        Family::Float(float) if key >= float.largest => key - float.largest,
        Family::Float(float) => format.sign() | (float.largest - key),
    }
}
