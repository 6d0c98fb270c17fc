//! Runs of blocks that go around the end: block n - 1 is followed by block 0.

/// A run of blocks that does not go around the end, and where it lies in the longer run it was cut from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// How many blocks of the longer run come before.
    pub offset: u32,
    /// The first block.
    pub block: u32,
    /// How many blocks.
    pub count: u32,
}

/// Cuts the run of `count <= n` blocks from `first` on, taken modulo `n`, where it goes around the end.
pub fn cut(first: u32, count: u32, n: u32) -> impl Iterator<Item = Piece> + Clone {
    let first = first % n;
    let before = count.min(n - first);
    let pieces =
        [Piece { offset: 0, block: first, count: before }, Piece { offset: before, block: 0, count: count - before }];
    pieces.into_iter().filter(|piece| piece.count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_is_covered_in_order() {
        for n in 1..9 {
            for first in 0..2 * n {
                for count in 0..=n {
                    let blocks: Vec<u32> = cut(first, count, n).flat_map(|p| p.block..p.block + p.count).collect();
                    let want: Vec<u32> = (first..first + count).map(|block| block % n).collect();
                    assert_eq!(blocks, want, "n {n}, first {first}, count {count}");
                    assert!(cut(first, count, n).count() <= 2);
                }
            }
        }
    }
}
