//! Where chunks lie: from a span of chunk numbers to a range of bytes.

use std::ops::Range;
use std::sync::Arc;

/// Chunks narrower than this are not rounded up to whole cache lines.
const ROUNDED_CHUNK_BYTES: usize = 1024;
const LINE_BYTES: usize = 64;

/// How the chunks of one buffer, in one slice, lie in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// `bytes` from `start` on, cut into chunks of `unit`; the last ones may be shorter or empty.
    Vector { start: usize, unit: usize, bytes: usize },
    /// Chunk `c` is the `bytes` from `c * stride + skip` on.
    Blocks { stride: usize, skip: usize, bytes: usize },
    /// Any places and lengths.
    Table(Arc<[Range<usize>]>),
}

impl Shape {
    /// A vector of `elements` of `size` bytes each, cut into `chunks`, from byte `start` on.
    pub(crate) fn vector(start: usize, elements: usize, size: usize, chunks: u32) -> Shape {
        let exact = elements.div_ceil(chunks as usize) * size;
        let unit = if exact >= ROUNDED_CHUNK_BYTES { exact.next_multiple_of(LINE_BYTES) } else { exact };
        Shape::Vector { start, unit, bytes: elements * size }
    }

    /// One chunk of `bytes`.
    pub(crate) fn whole(bytes: usize) -> Shape {
        Shape::Blocks { stride: bytes, skip: 0, bytes }
    }

    /// The bytes of chunks `first..first + count`, which must lie one behind the other.
    #[inline]
    pub(crate) fn range(&self, first: u32, count: u32) -> Range<usize> {
        let (first, end) = (first as usize, (first + count) as usize);
        match self {
            Shape::Vector { start, unit, bytes } => {
                start + (first * unit).min(*bytes)..start + (end * unit).min(*bytes)
            }
            Shape::Blocks { stride, skip, bytes } => {
                debug_assert!(count <= 1 || stride == bytes, "blocks cut into slices are taken one by one");
                let from = first * stride + skip;
                if count == 0 { from..from } else { from..from + (count as usize - 1) * stride + bytes }
            }
            Shape::Table(ranges) => {
                if count == 0 {
                    return 0..0;
                }
                debug_assert!(
                    ranges[first..end].windows(2).all(|pair| pair[0].end == pair[1].start),
                    "uneven blocks of a run lie one behind the other"
                );
                ranges[first].start..ranges[end - 1].end
            }
        }
    }

    /// How many bytes chunks `first..first + count` have.
    #[inline]
    pub(crate) fn bytes(&self, first: u32, count: u32) -> usize {
        let range = self.range(first, count);
        range.end - range.start
    }

    /// The longest chunk.
    pub(crate) fn widest(&self) -> usize {
        match self {
            Shape::Vector { unit, bytes, .. } => *unit.min(bytes),
            Shape::Blocks { bytes, .. } => *bytes,
            Shape::Table(ranges) => ranges.iter().map(|range| range.end - range.start).max().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_a_vector_cover_it() {
        for (elements, chunks) in [(0, 3), (1, 4), (5, 2), (7, 7), (8, 3), (10_000, 7), (4096, 64)] {
            let shape = Shape::vector(16, elements, 4, chunks);
            let mut next = 16;
            for c in 0..chunks {
                let range = shape.range(c, 1);
                assert_eq!(range.start, next, "chunk {c} of {chunks} over {elements} elements");
                assert!(range.len() <= shape.widest() && range.len().is_multiple_of(4));
                next = range.end;
            }
            assert_eq!(next, 16 + elements * 4);
            assert_eq!(shape.range(0, chunks), 16..next);
        }
    }

    #[test]
    fn slices_of_blocks_keep_the_stride() {
        let shape = Shape::Blocks { stride: 100, skip: 30, bytes: 10 };
        assert_eq!(shape.range(2, 1), 230..240);
        assert_eq!(Shape::Blocks { stride: 100, skip: 0, bytes: 100 }.range(1, 2), 100..300);
    }
}
