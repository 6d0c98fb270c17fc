//! Blocks of different lengths: which elements of a rank's vector go to which rank.
//!
//! A vector is cut in proportion to weights: in all_to_all_v, rank `from` has weight `(from + to) % n` for rank `to`, which
//! is 0 for one of them; in all_gather_v and reduce_scatter_v rank `to`'s block has weight `to + 1`.
//!
//! `mpi/loop.c` and `gloo/loop.py` have the same rules.

use std::ops::Range;

use crate::matrix::{Call, Cell};

/// The sum of the numbers below `k`.
fn below(k: usize) -> usize {
    k * k.saturating_sub(1) / 2
}

/// Where the block for rank `to` begins in rank `from`'s vector of `elements`.
fn begin(call: Call, elements: usize, ranks: usize, from: usize, to: usize) -> usize {
    let (weight, all) = match call {
        Call::AllToAllV if from + to <= ranks => (below(from + to) - below(from), below(ranks)),
        Call::AllToAllV => (below(ranks) - below(from) + below(from + to - ranks), below(ranks)),
        _ => (below(to + 1), below(ranks + 1)),
    };
    elements * weight / all
}

/// The block for rank `to` in rank `from`'s vector.
#[must_use]
pub fn block(cell: &Cell, ranks: usize, from: usize, to: usize) -> Range<usize> {
    let begin = |to| begin(cell.call, cell.count(ranks), ranks, from, to);
    begin(to)..begin(to + 1)
}

/// How many elements rank `rank` sends to each rank; the blocks of all ranks, in all_gather_v and reduce_scatter_v.
#[must_use]
pub fn sends(cell: &Cell, ranks: usize, rank: usize) -> Vec<usize> {
    (0..ranks).map(|to| block(cell, ranks, rank, to).len()).collect()
}

/// How many elements rank `rank` of an all_to_all_v receives from each rank.
#[must_use]
pub fn receives(cell: &Cell, ranks: usize, rank: usize) -> Vec<usize> {
    (0..ranks).map(|from| block(cell, ranks, from, rank).len()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::ElementType;

    fn cell(call: Call, elements: usize) -> Cell {
        Cell { call, element: ElementType::F32, bytes: elements * 4, iterations: 1 }
    }

    #[test]
    fn blocks_cover_the_vector() {
        for call in [Call::AllToAllV, Call::AllGatherV, Call::ReduceScatterV] {
            for (ranks, elements) in [(2, 1), (2, 7), (3, 100), (8, 1000)] {
                for rank in 0..ranks {
                    let sends = sends(&cell(call, elements), ranks, rank);
                    assert_eq!(sends.iter().sum::<usize>(), elements, "{call:?} {ranks} {sends:?}");
                }
            }
        }
    }

    #[test]
    fn shares_of_four_ranks() {
        let to_all = cell(Call::AllToAllV, 60);
        assert_eq!(sends(&to_all, 4, 0), [0, 10, 20, 30]);
        assert_eq!(sends(&to_all, 4, 3), [30, 0, 10, 20]);
        assert_eq!(receives(&to_all, 4, 1), [10, 20, 30, 0]);
        assert_eq!(sends(&cell(Call::AllGatherV, 50), 4, 0), [5, 10, 15, 20]);
    }
}
