//! What is called: the collectives, and what is more than one of them.

use clap::ValueEnum;

/// How many calls [`Call::GroupOf50`] makes together.
pub const GROUPED: usize = 50;

/// What is called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Call {
    /// The sum on every rank.
    AllReduce,
    /// A block of the sum on each rank.
    ReduceScatter,
    /// Every rank's block on every rank.
    AllGather,
    /// A block from every rank to every rank.
    AllToAll,
    /// Rank 0's vector on every rank.
    Broadcast,
    /// The sum on rank 0.
    Reduce,
    /// A message to the next rank, and one from the rank before.
    SendRecv,
    /// A message from each even rank to the odd one after it, and one back: twice what a latency test calls latency.
    PingPong,
    /// A message from each even rank to the odd one after it.
    OneWay,
    /// As `ReduceScatter`, with blocks of different lengths.
    ReduceScatterV,
    /// As `AllGather`, with blocks of different lengths.
    AllGatherV,
    /// As `AllToAll`, with blocks of different lengths.
    AllToAllV,
    /// 50 all_reduces at once.
    #[value(name = "group_of_50")]
    GroupOf50,
    /// A communicator of all ranks, made by a split and dropped.
    Split,
    /// Two communicators of half of the ranks each.
    SplitHalves,
    /// An all_reduce in a communicator of all ranks that was made by a split.
    SplitAllReduce,
    /// A copy within each process, all at once: what the memory allows. Not a collective.
    #[value(skip)]
    Copy,
    /// A sum on every rank while all compute; see [`crate::overlap`].
    #[value(skip)]
    Overlap,
}

impl Call {
    const ALL: [(Call, &str); 18] = [
        (Call::AllReduce, "all_reduce"),
        (Call::ReduceScatter, "reduce_scatter"),
        (Call::AllGather, "all_gather"),
        (Call::AllToAll, "all_to_all"),
        (Call::Broadcast, "broadcast"),
        (Call::Reduce, "reduce"),
        (Call::SendRecv, "send_recv"),
        (Call::PingPong, "ping_pong"),
        (Call::OneWay, "one_way"),
        (Call::ReduceScatterV, "reduce_scatter_v"),
        (Call::AllGatherV, "all_gather_v"),
        (Call::AllToAllV, "all_to_all_v"),
        (Call::GroupOf50, "group_of_50"),
        (Call::Split, "split"),
        (Call::SplitHalves, "split_halves"),
        (Call::SplitAllReduce, "split_all_reduce"),
        (Call::Copy, "copy"),
        (Call::Overlap, "overlap"),
    ];

    /// Its name in options and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        Call::ALL[self as usize].1
    }

    /// The call of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Call> {
        Call::ALL.into_iter().find(|(_, known)| *known == name).map(|(call, _)| call)
    }

    /// Whether the size is that of all ranks' blocks together, which are of one length.
    #[must_use]
    pub fn has_blocks(self) -> bool {
        matches!(self, Call::ReduceScatter | Call::AllGather | Call::AllToAll)
    }

    /// Whether it moves elements: otherwise it is measured once, without a size.
    #[must_use]
    pub fn has_sizes(self) -> bool {
        !matches!(self, Call::Split | Call::SplitHalves)
    }

    /// How many collectives of the size it is.
    #[must_use]
    pub fn at_once(self) -> usize {
        if self == Call::GroupOf50 { GROUPED } else { 1 }
    }

    /// How often it is made in a row at most.
    #[must_use]
    pub fn iterations_max(self) -> usize {
        match self {
            Call::Split | Call::SplitHalves => 100,
            Call::GroupOf50 => 2_000,
            _ => usize::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_options() {
        for call in Call::value_variants() {
            assert_eq!(call.to_possible_value().unwrap().get_name(), call.name());
            assert_eq!(Call::named(call.name()), Some(*call));
        }
        for (at, (call, _)) in Call::ALL.iter().enumerate() {
            assert_eq!(*call as usize, at);
        }
    }
}
