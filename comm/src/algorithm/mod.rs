//! The algorithms: one file each, and one table.
//!
//! A row names a function that writes one rank's rounds. The proof, the conformance tests, the price, the drawing and
//! the line in `docs/costs.md` follow from the row. To add an algorithm, add a file and a row.

#![forbid(unsafe_code)]

mod binomial;
mod bruck;
mod circulant;
mod core_ranks;
mod cyclic;
mod direct;
mod dissemination;
mod double_tree;
mod halving_doubling;
mod pairwise;
mod recursive_doubling;
mod ring;
mod row;
mod scatter_ring;
mod tree;
mod two_level;

use crate::collective::Collective::{
    self, AllGather, AllReduce, AllToAll, Barrier, Broadcast, Gather, Reduce, ReduceScatter, Scatter,
};

use crate::schedule::Groups;

pub use row::Row;

const fn one(_: &Groups) -> u32 {
    1
}

const fn two(_: &Groups) -> u32 {
    2
}

const fn chain(_: &Groups) -> u32 {
    ring::CHAIN_CHUNKS
}

const RABENSEIFNER: &str = "Rabenseifner 2004";
const THAKUR: &str = "Thakur, Rabenseifner, Gropp 2005";
const SANDERS: &str = "Sanders, Speck, Träff 2009";
const TRAEFF: &str = "Träff 2024, arXiv 2410.14234";
const BRUCK: &str = "Bruck, Ho, Kipnis, Upfal, Weathersby 1997";
const PATARASUK: &str = "Patarasuk, Yuan 2009";
const FOLKLORE: &str = "folklore";

/// Every algorithm.
pub static ROWS: &[Row] = &[
    Row::new(AllReduce, "ring", ring::all_reduce, ring::all_reduce_work)
        .about("reduce-scatter, then all-gather, around a ring of neighbours", PATARASUK),
    Row::new(AllReduce, "recursive_doubling", recursive_doubling::all_reduce, recursive_doubling::all_reduce_work)
        .chunks(one)
        .about("whole vectors between ranks 1, 2, 4, ... apart", THAKUR),
    Row::new(AllReduce, "halving_doubling", halving_doubling::all_reduce, halving_doubling::all_reduce_work)
        .about("halves between ranks ..., 4, 2, 1 apart, and back", RABENSEIFNER),
    Row::new(AllReduce, "circulant", circulant::all_reduce, circulant::all_reduce_work)
        .about("as halving and doubling, at no extra cost where n is not a power of two", TRAEFF),
    Row::new(AllReduce, "double_tree", double_tree::all_reduce, double_tree::all_reduce_work)
        .chunks(two)
        .about("up and down two binary trees, half of the message each", SANDERS),
    Row::new(AllReduce, "direct", direct::all_reduce, direct::all_reduce_work)
        .chunks(one)
        .about("everyone sends to everyone, one fold in rank order", FOLKLORE),
    Row::new(AllReduce, "two_level", two_level::all_reduce, two_level::all_reduce_work)
        .in_levels()
        .chunks(two_level::chunks)
        .about("reduce-scatter inside groups, rings across, all-gather inside", FOLKLORE),
    Row::new(AllReduce, "three_level", two_level::three_level, two_level::all_reduce_work)
        .in_levels()
        .chunks(two_level::three_level_chunks)
        .about("the same with groups inside groups, as many levels as there are", FOLKLORE),
    Row::new(AllReduce, "two_level_tree", two_level::tree, two_level::tree_work)
        .in_levels()
        .chunks(two_level::tree_chunks)
        .about("reduce-scatter inside groups, two trees across, all-gather inside", SANDERS),
    Row::new(Reduce, "ring", ring::reduce, ring::reduce_work)
        .chunks(chain)
        .about("a pipelined chain towards the root", FOLKLORE),
    Row::new(Reduce, "double_tree", double_tree::reduce, double_tree::reduce_work)
        .chunks(two)
        .about("up two binary trees, half of the message each", SANDERS),
    Row::new(Reduce, "binomial", binomial::reduce, binomial::reduce_work)
        .chunks(one)
        .about("up a binomial tree", THAKUR),
    Row::new(Reduce, "direct", direct::reduce, direct::all_reduce_work)
        .chunks(one)
        .about("everyone sends to the root, one fold in rank order", FOLKLORE),
    Row::new(Broadcast, "ring", ring::broadcast, ring::broadcast_work)
        .chunks(chain)
        .about("a pipelined chain from the root on", FOLKLORE),
    Row::new(Broadcast, "double_tree", double_tree::broadcast, double_tree::broadcast_work)
        .chunks(two)
        .about("down two binary trees, half of the message each", SANDERS),
    Row::new(Broadcast, "binomial", binomial::broadcast, binomial::broadcast_work)
        .chunks(one)
        .about("down a binomial tree", THAKUR),
    Row::new(Broadcast, "scatter_ring", scatter_ring::broadcast, scatter_ring::broadcast_work)
        .about("the root deals out chunks, which go around a ring", "Barnett et al. 1994"),
    Row::new(Broadcast, "two_level", two_level::broadcast, two_level::broadcast_work)
        .in_levels()
        .chunks(two_level::broadcast_chunks)
        .about("dealt out inside the root's group, along a chain of groups, gathered inside", FOLKLORE),
    Row::new(Broadcast, "direct", direct::broadcast, direct::broadcast_work)
        .chunks(one)
        .about("the root sends to everyone", FOLKLORE),
    Row::new(AllGather, "ring", ring::all_gather, ring::all_gather_work)
        .about("blocks travel once around a ring", PATARASUK),
    Row::new(AllGather, "bruck", bruck::all_gather, bruck::all_gather_work)
        .in_runs()
        .about("runs that double, between ranks 1, 2, 4, ... apart", BRUCK),
    Row::new(AllGather, "recursive_doubling", recursive_doubling::all_gather, recursive_doubling::all_gather_work)
        .in_runs()
        .about("runs that double, exchanged by pairs; extra rounds where n is not a power of two", THAKUR),
    Row::new(AllGather, "direct", direct::all_gather, direct::blocks_work)
        .about("everyone sends to everyone", FOLKLORE),
    Row::new(AllGather, "two_level", two_level::all_gather, two_level::all_gather_work)
        .in_levels()
        .about("across groups, then inside, pair by pair", FOLKLORE),
    Row::new(ReduceScatter, "ring", ring::reduce_scatter, ring::reduce_scatter_work)
        .about("partial sums travel once around a ring", PATARASUK),
    Row::new(ReduceScatter, "pairwise", pairwise::reduce_scatter, pairwise::reduce_scatter_work)
        .about("one share from one rank per round, folded as it comes", THAKUR),
    Row::new(
        ReduceScatter,
        "halving_doubling",
        halving_doubling::reduce_scatter,
        halving_doubling::reduce_scatter_work,
    )
    .in_runs()
    .about("halves between ranks ..., 4, 2, 1 apart", RABENSEIFNER),
    Row::new(ReduceScatter, "circulant", circulant::reduce_scatter, circulant::reduce_scatter_work)
        .in_runs()
        .about("as halving, at no extra cost where n is not a power of two", TRAEFF),
    Row::new(ReduceScatter, "direct", direct::reduce_scatter, direct::reduce_scatter_work)
        .about("everyone sends everyone's share, one fold in rank order", FOLKLORE),
    Row::new(ReduceScatter, "two_level", two_level::reduce_scatter, two_level::reduce_scatter_work)
        .in_levels()
        .about("inside groups, then across, pair by pair", FOLKLORE),
    Row::new(AllToAll, "pairwise", pairwise::all_to_all, pairwise::all_to_all_work)
        .out_of_place_only()
        .about("one block to one rank per round", THAKUR),
    Row::new(AllToAll, "exchange", pairwise::exchange, pairwise::exchange_work)
        .about("two ranks swap blocks per round, through scratch", FOLKLORE),
    Row::new(AllToAll, "bruck", bruck::all_to_all, bruck::all_to_all_work)
        .even_only()
        .in_runs()
        .about("packed blocks hop by the bits of their distance", BRUCK),
    Row::new(AllToAll, "two_level", two_level::all_to_all, two_level::all_to_all_work)
        .in_levels()
        .even_only()
        .out_of_place_only()
        .in_runs()
        .about("collected inside groups, then one message for each reader of another", FOLKLORE),
    Row::new(AllToAll, "direct", direct::all_to_all, direct::blocks_work)
        .out_of_place_only()
        .about("everyone sends to everyone", FOLKLORE),
    Row::new(Gather, "binomial", binomial::gather, binomial::blocks_work).in_runs().about("up a binomial tree", THAKUR),
    Row::new(Gather, "direct", direct::gather, direct::blocks_work).about("everyone sends to the root", FOLKLORE),
    Row::new(Scatter, "binomial", binomial::scatter, binomial::blocks_work)
        .in_runs()
        .about("down a binomial tree", THAKUR),
    Row::new(Scatter, "direct", direct::scatter, direct::blocks_work).about("the root sends to everyone", FOLKLORE),
    Row::new(Barrier, "dissemination", dissemination::barrier, dissemination::barrier_work)
        .chunks(one)
        .about("word of arrival spreads to ranks 1, 2, 4, ... on", "Hensgen, Finkel, Manber 1988"),
    Row::new(Barrier, "direct", direct::barrier, direct::barrier_work)
        .chunks(one)
        .about("everyone tells everyone", FOLKLORE),
];

/// The rows of a collective, in the table's order.
pub fn rows_for(collective: Collective) -> impl Iterator<Item = &'static Row> {
    ROWS.iter().filter(move |row| row.collective == collective)
}

/// The row of that collective and name.
#[must_use]
pub fn row(collective: Collective, name: &str) -> Option<&'static Row> {
    rows_for(collective).find(|row| row.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_complete_and_their_names_are_unique() {
        for (index, row) in ROWS.iter().enumerate() {
            assert!(!row.summary.is_empty() && !row.source.is_empty(), "{} {}", row.collective, row.name);
            let first = ROWS.iter().position(|other| (other.collective, other.name) == (row.collective, row.name));
            assert_eq!(first, Some(index), "{} {}", row.collective, row.name);
        }
        use Collective::{Recv, Send, SendRecv};
        for collective in Collective::ALL.into_iter().filter(|c| ![Send, Recv, SendRecv].contains(c)) {
            for n in 1..300 {
                let any = |of: fn(&Row) -> bool| rows_for(collective).any(|row| (row.fits)(n) && of(row));
                assert!(any(|row| row.uneven), "{collective} of uneven blocks, n = {n}");
                assert!(any(|row| row.in_place), "{collective} in place, n = {n}");
                assert!(any(|row| row.uneven && row.in_place), "{collective} of uneven blocks in place, n = {n}");
            }
        }
    }
}
