//! The largest power of two of the ranks, and where the rest go: what doubling and halving need for any n.
//!
//! With n = 2^L + r, the first 2r ranks form r pairs of neighbours. The even one of each pair stands for both; with the
//! ranks after the pairs they are the 2^L core ranks. A core rank stands for one block, or for two that are neighbours,
//! so that any run of core ranks stands for one run of blocks.

use crate::schedule::{Program, Rank};

/// How the ranks of a communicator map to a power of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Core {
    /// L: how many rounds the core takes.
    pub n_rounds: u32,
    /// r: how many pairs there are.
    pub n_pairs: u32,
}

/// What a rank does in an algorithm over the core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Takes part, as this core rank; stands also for the rank after it when `Some`.
    Core(u32, Option<Rank>),
    /// Is stood for by that rank.
    Extra(Rank),
}

impl Core {
    /// The core of a program's communicator.
    pub fn of(p: &Program) -> Core {
        let n_rounds = p.size.ilog2();
        Core { n_rounds, n_pairs: p.size - (1 << n_rounds) }
    }

    /// What rank `rank` does.
    pub fn role(self, rank: Rank) -> Role {
        match rank {
            _ if rank >= 2 * self.n_pairs => Role::Core(rank - self.n_pairs, None),
            _ if rank.is_multiple_of(2) => Role::Core(rank / 2, Some(rank + 1)),
            _ => Role::Extra(rank - 1),
        }
    }

    /// The rank that is core rank `place`. Also the first block that it stands for.
    pub fn rank(self, place: u32) -> Rank {
        if place < self.n_pairs { 2 * place } else { place + self.n_pairs }
    }

    /// The blocks that the `count` core ranks from `place` on stand for: the first, and how many.
    pub fn blocks(self, place: u32, count: u32) -> (u32, u32) {
        let first = self.rank(place);
        (first, self.rank(place + count) - first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_ranks_and_blocks_cover_every_rank_once() {
        for n in 1..70 {
            let core = Core::of(&Program::new(0, n, 0, 1));
            let width = 1 << core.n_rounds;
            assert_eq!(core.blocks(0, width), (0, n), "n {n}");
            let mut seen = vec![0; n as usize];
            for rank in 0..n {
                match core.role(rank) {
                    Role::Core(place, second) => {
                        assert_eq!(core.rank(place), rank, "n {n}");
                        assert_eq!(core.blocks(place, 1), (rank, 1 + u32::from(second.is_some())), "n {n}");
                        seen[rank as usize] += 1;
                        second.into_iter().for_each(|second| seen[second as usize] += 1);
                    }
                    Role::Extra(first) => assert_eq!(core.role(first), Role::Core(first / 2, Some(rank)), "n {n}"),
                }
            }
            assert!(seen.iter().all(|count| *count == 1), "n {n}: {seen:?}");
        }
    }
}
