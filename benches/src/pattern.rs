//! What the buffers hold, so that every implementation's result can be checked: small numbers, exact in every type.
//!
//! `mpi/loop.c` and `gloo/loop.py` have the same rules.

use crate::call::GROUPED;
use crate::matrix::{Call, Cell};
use crate::shares::{block, receives, sends};

/// Element `at` of rank `rank`'s input: 1 to 5.
#[must_use]
pub fn value(rank: usize, at: usize) -> usize {
    (rank + at) % 5 + 1
}

/// Elements of rank `rank`'s input and output.
#[must_use]
pub fn lengths(cell: &Cell, ranks: usize, rank: usize) -> (usize, usize) {
    let count = cell.count(ranks);
    match cell.call {
        Call::ReduceScatter => (count * ranks, count),
        Call::AllGather => (count, count * ranks),
        Call::AllToAll => (count * ranks, count * ranks),
        Call::ReduceScatterV => (count, sends(cell, ranks, rank)[rank]),
        Call::AllGatherV => (sends(cell, ranks, rank)[rank], count),
        Call::AllToAllV => (count, receives(cell, ranks, rank).iter().sum()),
        Call::GroupOf50 => (GROUPED * count, GROUPED * count),
        Call::Split | Call::SplitHalves => (0, 0),
        Call::AllReduce
        | Call::Overlap
        | Call::Broadcast
        | Call::Reduce
        | Call::SendRecv
        | Call::PingPong
        | Call::OneWay
        | Call::SplitAllReduce
        | Call::Copy => (count, count),
    }
}

/// Element `at` of the output of rank `rank`; `None` where it has none.
#[must_use]
pub fn expected(cell: &Cell, ranks: usize, rank: usize, at: usize) -> Option<usize> {
    let count = cell.count(ranks);
    let sum = |at| (0..ranks).map(|rank| value(rank, at)).sum();
    Some(match cell.call {
        Call::AllReduce | Call::GroupOf50 | Call::SplitAllReduce | Call::Overlap => sum(at),
        Call::Reduce if rank == 0 => sum(at),
        Call::Reduce => return None,
        Call::ReduceScatter => sum(rank * count + at),
        Call::AllGather => value(at / count, at % count),
        Call::AllToAll => value(at / count, rank * count + at % count),
        Call::ReduceScatterV => sum(block(cell, ranks, rank, rank).start + at),
        Call::AllGatherV => {
            let from = (0..ranks).find(|from| at < block(cell, ranks, rank, *from).end)?;
            value(from, at - block(cell, ranks, rank, from).start)
        }
        Call::AllToAllV => {
            let mut before = at;
            for from in 0..ranks {
                let theirs = block(cell, ranks, from, rank);
                if before < theirs.len() {
                    return Some(value(from, theirs.start + before));
                }
                before -= theirs.len();
            }
            return None;
        }
        Call::Split | Call::SplitHalves => return None,
        Call::Broadcast => value(0, at),
        Call::SendRecv => value((rank + ranks - 1) % ranks, at),
        Call::PingPong if rank ^ 1 < ranks => value(rank ^ 1, at),
        Call::OneWay if rank % 2 == 1 => value(rank - 1, at),
        Call::PingPong | Call::OneWay => return None,
        Call::Copy => value(rank, at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::ElementType;

    #[test]
    fn results_of_three_ranks() {
        let of = |call, rank| {
            let cell = Cell { call, element: ElementType::F32, bytes: 24, iterations: 1 };
            let (_, length) = lengths(&cell, 3, rank);
            (0..length).map(|at| expected(&cell, 3, rank, at)).collect::<Option<Vec<_>>>()
        };
        // The inputs are 1 2 3 4 5 1, 2 3 4 5 1 2, and 3 4 5 1 2 3.
        assert_eq!(of(Call::AllReduce, 2), Some(vec![6, 9, 12, 10, 8, 6]));
        assert_eq!(of(Call::Reduce, 0), Some(vec![6, 9, 12, 10, 8, 6]));
        assert_eq!(of(Call::Reduce, 1), None);
        assert_eq!(of(Call::ReduceScatter, 1), Some(vec![12, 10]));
        assert_eq!(of(Call::AllGather, 1), Some(vec![1, 2, 2, 3, 3, 4]));
        assert_eq!(of(Call::AllToAll, 1), Some(vec![3, 4, 4, 5, 5, 1]));
        assert_eq!(of(Call::Broadcast, 1), Some(vec![1, 2, 3, 4, 5, 1]));
        assert_eq!(of(Call::SendRecv, 0), Some(vec![3, 4, 5, 1, 2, 3]));
        // Blocks of 1, 2 and 3 elements; to all: 0 2 4, then 2 4 0, then 4 0 2.
        assert_eq!(of(Call::ReduceScatterV, 1), Some(vec![9, 12]));
        assert_eq!(of(Call::AllGatherV, 0), Some(vec![1, 2, 3, 3, 4, 5]));
        assert_eq!(of(Call::AllToAllV, 0), Some(vec![2, 3, 3, 4, 5, 1]));
        assert_eq!(of(Call::GroupOf50, 0).map(|all| all.len()), Some(GROUPED * 6));
        assert_eq!(of(Call::Split, 0), Some(vec![]));
    }
}
