//! Which byte streams a call uses, and which ranks its program's numbers mean.

use paceline_transport::Channel;

use crate::schedule::Rank;

/// Which byte streams a call uses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Channels {
    /// A collective: one channel per lane, on every link.
    Collective { sequence: u64 },
    /// Messages between two ranks, numbered per pair and direction.
    Messages { sending: u64, receiving: u64 },
}

const MESSAGE_BIT: u64 = 1 << 63;
/// How many bits of a channel number the lane.
pub(super) const LANE_BITS: u32 = 4;

impl Channels {
    #[inline]
    pub(crate) fn of(self, lane: usize, receives: bool) -> Channel {
        let number = match self {
            Channels::Collective { sequence } => sequence,
            Channels::Messages { sending, .. } if !receives => sending | MESSAGE_BIT >> LANE_BITS,
            Channels::Messages { receiving, .. } => receiving | MESSAGE_BIT >> LANE_BITS,
        };
        Channel(number << LANE_BITS | lane as u64)
    }

    /// The collective's number that a channel belongs to, if it belongs to a collective.
    pub(crate) fn collective_of(channel: Channel) -> Option<u64> {
        (channel.0 & MESSAGE_BIT == 0).then_some(channel.0 >> LANE_BITS)
    }
}

/// Which ranks of the links a program's rank numbers mean.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Naming {
    /// The program is written for all ranks.
    Whole,
    /// The program is written for two: rank 0 sends to `to`, and receives from `from`.
    Pair { to: usize, from: usize },
}

impl Naming {
    #[inline(always)]
    pub(super) fn target(self, rank: Rank) -> usize {
        match self {
            Naming::Whole => rank as usize,
            Naming::Pair { to, .. } => to,
        }
    }

    #[inline(always)]
    pub(super) fn source(self, rank: Rank) -> usize {
        match self {
            Naming::Whole => rank as usize,
            Naming::Pair { from, .. } => from,
        }
    }
}
