//! Where the bytes of a call lie: what is brought, what must have come, and what must not have been touched.

use std::ops::Range;

/// A buffer with bytes around it that nobody may write, at an address of no particular alignment.
#[derive(Clone, Debug)]
pub struct Place {
    storage: Vec<u8>,
    range: Range<usize>,
}

const GUARD: u8 = 0xa5;
const GUARD_BYTES: usize = 64;

impl Place {
    /// A buffer that holds `content`, `shift` bytes further than it might lie.
    #[must_use]
    pub fn new(content: &[u8], shift: usize) -> Place {
        let start = GUARD_BYTES + shift;
        let range = start..start + content.len();
        let mut storage = vec![GUARD; range.end + GUARD_BYTES];
        storage[range.clone()].copy_from_slice(content);
        Place { storage, range }
    }

    /// The buffer.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.storage[self.range.clone()]
    }

    /// The buffer, to be written.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.range.clone()]
    }

    /// Whether nobody wrote around it.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        let outside = self.storage[..self.range.start].iter().chain(&self.storage[self.range.end..]);
        outside.into_iter().all(|byte| *byte == GUARD)
    }
}

/// What a buffer must hold after a call.
#[derive(Clone, Debug, Default)]
pub struct Want {
    /// The whole buffer.
    pub bytes: Vec<u8>,
    /// Parts of it that may hold anything.
    pub free: Vec<Range<usize>>,
}

impl Want {
    /// A buffer that must hold `bytes`.
    #[must_use]
    pub fn exactly(bytes: Vec<u8>) -> Want {
        Want { bytes, free: Vec::new() }
    }

    /// What is wrong with `bytes`, if anything.
    #[must_use]
    pub fn compare(&self, bytes: &[u8]) -> Option<String> {
        if bytes.len() != self.bytes.len() {
            return Some(format!("{} bytes instead of {}", bytes.len(), self.bytes.len()));
        }
        if bytes == self.bytes {
            return None;
        }
        let is_free = |at: usize| self.free.iter().any(|range| range.contains(&at));
        let differs = |at: &usize| bytes[*at] != self.bytes[*at] && !is_free(*at);
        let first = (0..bytes.len()).find(differs)?;
        let n_wrong = (0..bytes.len()).filter(differs).count();
        let near = first..bytes.len().min(first + 16);
        let (have, want) = (&bytes[near.clone()], &self.bytes[near]);
        let of = bytes.len();
        Some(format!("{n_wrong} of {of} bytes are wrong, first byte {first}: {have:02x?} instead of {want:02x?}"))
    }
}

/// Blocks in a buffer: for each rank, how many elements and where they start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blocks {
    /// Elements of each rank's block.
    pub counts: Vec<usize>,
    /// Where each starts, in elements.
    pub offsets: Vec<usize>,
}

impl Blocks {
    /// Blocks one behind the other.
    #[must_use]
    pub fn packed(counts: Vec<usize>) -> Blocks {
        let starts = counts.iter().scan(0, |next, count| Some(std::mem::replace(next, *next + count)));
        Blocks { offsets: starts.collect(), counts }
    }

    /// Blocks in the order `order`, with `gap` elements between them.
    #[must_use]
    pub fn scattered(counts: Vec<usize>, order: &[usize], gap: usize) -> Blocks {
        let (mut offsets, mut next) = (vec![0; counts.len()], gap);
        for rank in order {
            offsets[*rank] = next;
            next += counts[*rank] + gap;
        }
        Blocks { counts, offsets }
    }

    /// Where a rank's block lies, in bytes.
    #[must_use]
    pub fn range(&self, rank: usize, size: usize) -> Range<usize> {
        let start = self.offsets[rank] * size;
        start..start + self.counts[rank] * size
    }

    /// How long a buffer must be that holds them, in bytes.
    #[must_use]
    pub fn bytes(&self, size: usize) -> usize {
        (0..self.counts.len()).map(|rank| self.range(rank, size).end).max().unwrap_or(0)
    }

    /// Puts a rank's block into `buffer`.
    pub fn put(&self, buffer: &mut [u8], rank: usize, size: usize, block: &[u8]) {
        buffer[self.range(rank, size)].copy_from_slice(block);
    }
}
