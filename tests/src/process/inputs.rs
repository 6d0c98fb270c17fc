//! What ranks bring to the calls of a test, what must come of it, and the digest of what all must hold alike.

use paceline_comm::{Communicator, Element};

/// What all ranks must hold alike, folded to one number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Digest(u64);

impl Digest {
    /// Of nothing yet.
    #[must_use]
    pub fn new() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }

    /// Folds in the bits of some elements, and how many they are.
    pub fn add<T: Element>(&mut self, elements: &[T]) {
        let bits = elements.iter().map(|element| element.to_bits64());
        self.0 = bits.chain([elements.len() as u64]).fold(self.0, |hash, word| {
            let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ (mixed >> 29)
        });
    }
}

impl Default for Digest {
    fn default() -> Digest {
        Digest::new()
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What rank `rank` brings as element `i`.
pub(super) fn brings(rank: usize, i: usize) -> i64 {
    (rank as i64 + 2) * 1009 + (i as i64 % 257) * 7 - (i as i64 % 5) * 300
}

pub(super) fn vector(rank: usize, len: usize) -> Vec<i64> {
    (0..len).map(|i| brings(rank, i)).collect()
}

pub(super) fn fraction(rank: usize, i: usize) -> f32 {
    1.0 / (rank as f32 + 3.0) + (i % 101) as f32 * 0.013
}

/// The sum over all ranks of element `i`.
pub(super) fn sum(size: usize, i: usize) -> i64 {
    (0..size).map(|rank| brings(rank, i)).sum()
}

pub(super) fn root_of(comm: &Communicator, len: usize) -> usize {
    len % comm.size()
}

pub(super) fn same(what: &str, len: usize, found: &[i64], want: impl Iterator<Item = i64>) {
    let wrong = found.iter().zip(want).enumerate().find(|(_, (found, want))| *found != want);
    assert!(wrong.is_none(), "{what} of {len}: element, (found, wanted) is {wrong:?}");
}

/// All ranks' vectors of `len` elements, one behind the other.
pub(super) fn everyone(size: usize, len: usize) -> impl Iterator<Item = i64> {
    (0..size).flat_map(move |rank| (0..len).map(move |i| brings(rank, i)))
}

/// Blocks of different lengths, some empty.
pub(super) fn uneven(size: usize, len: usize) -> Vec<usize> {
    (0..size).map(|rank| if rank % 3 == 1 { 0 } else { len / 2 + rank * usize::from(len > 0) }).collect()
}

/// The places of blocks of different lengths that lie one behind the other.
pub(super) fn places(counts: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    counts.iter().enumerate().flat_map(|(rank, count)| (0..*count).map(move |i| (rank, i)))
}
