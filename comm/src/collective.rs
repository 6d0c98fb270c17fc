//! What a collective is: its name, which ranks hold what before and after, and how many chunks it moves.

/// The collectives. Rank numbers, counts and chunks below are those of the communicator; `n` is its size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
pub enum Collective {
    /// Every rank holds the reduction of all ranks' vectors.
    AllReduce = 1,
    /// The root holds the reduction of all ranks' vectors.
    Reduce = 2,
    /// Every rank holds the root's vector.
    Broadcast = 3,
    /// Every rank holds all ranks' blocks, in rank order.
    AllGather = 4,
    /// Rank `i` holds the reduction of all ranks' block `i`.
    ReduceScatter = 5,
    /// Rank `i` holds block `i` of every rank, in rank order.
    AllToAll = 6,
    /// The root holds all ranks' blocks, in rank order.
    Gather = 7,
    /// Rank `i` holds the root's block `i`.
    Scatter = 8,
    /// No rank goes on before all have come.
    Barrier = 9,
    /// One rank's message to one peer.
    Send = 10,
    /// One peer's message to this rank.
    Recv = 11,
    /// A message to one peer and a message from one peer, at the same time.
    SendRecv = 12,
}

impl Collective {
    /// Every collective, in the order of their numbers.
    pub const ALL: [Collective; 12] = [
        Collective::AllReduce,
        Collective::Reduce,
        Collective::Broadcast,
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::AllToAll,
        Collective::Gather,
        Collective::Scatter,
        Collective::Barrier,
        Collective::Send,
        Collective::Recv,
        Collective::SendRecv,
    ];

    /// The name used in logs, errors, tables and the environment.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Collective::AllReduce => "all_reduce",
            Collective::Reduce => "reduce",
            Collective::Broadcast => "broadcast",
            Collective::AllGather => "all_gather",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::AllToAll => "all_to_all",
            Collective::Gather => "gather",
            Collective::Scatter => "scatter",
            Collective::Barrier => "barrier",
            Collective::Send => "send",
            Collective::Recv => "recv",
            Collective::SendRecv => "send_recv",
        }
    }

    /// The collective of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Collective> {
        Collective::ALL.into_iter().find(|c| c.name() == name)
    }

    /// Whether the collective combines elements.
    #[must_use]
    pub const fn reduces(self) -> bool {
        matches!(self, Collective::AllReduce | Collective::Reduce | Collective::ReduceScatter)
    }

    /// Whether each rank has a block of its own, rather than all the same vector.
    #[must_use]
    pub const fn has_blocks(self) -> bool {
        use Collective::{AllGather, AllToAll, Gather, ReduceScatter, Scatter};
        matches!(self, AllGather | ReduceScatter | AllToAll | Gather | Scatter)
    }

    /// Whether it is between two ranks, and not all.
    #[must_use]
    pub const fn is_message(self) -> bool {
        matches!(self, Collective::Send | Collective::Recv | Collective::SendRecv)
    }

    /// Whether one rank, the root, is special.
    #[must_use]
    pub const fn has_root(self) -> bool {
        matches!(self, Collective::Reduce | Collective::Broadcast | Collective::Gather | Collective::Scatter)
    }
}

impl std::fmt::Display for Collective {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
