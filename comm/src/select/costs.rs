//! What kinds of links charge, as constants, until a machine is measured.

use paceline_transport::LinkKind;

use crate::algorithm::Row;
use crate::collective::Collective;
use crate::engine::published_bytes;
use crate::schedule::cost::Costs;

/// The prices of a group of ranks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Machine {
    costs: Costs,
    /// Scratch beyond this leaves the cache, and is paid for as memory.
    cache_bytes: f64,
}

/// What a message through memory costs a rank, whatever its length.
const MEMORY_MESSAGE_S: f64 = 40e-9;
/// What looking at one more board costs.
const BOARD_PEER_S: f64 = 20e-9;

impl Machine {
    /// The prices of the slowest kind of link, where `crowding` ranks share each core.
    ///
    /// The figures are of a small virtual machine with two cores (`docs/performance.md`). Ranks that share a core take
    /// turns: whatever a rank does takes as long as all of them together, and a message costs a switch between them.
    pub(crate) fn of(slowest: LinkKind, crowding: u32) -> Machine {
        let turns = f64::from(crowding.max(1));
        let (latency_s, message_s, byte_s) = match slowest {
            LinkKind::Inproc | LinkKind::Shm => (60e-9, MEMORY_MESSAGE_S, 1.0 / 12e9),
            LinkKind::Tcp | LinkKind::Sim => (8e-6, 3e-6, 1.0 / 1.5e9),
        };
        let switch_s = if crowding > 1 { 1e-6 } else { 0.0 };
        let costs = Costs {
            latency_s: latency_s + switch_s * turns,
            message_s: message_s * turns,
            byte_s: byte_s * turns,
            fold_byte_s: turns / 20e9,
            copy_byte_s: turns / 20e9,
        };
        Machine { costs, cache_bytes: (1 << 20) as f64 }
    }

    /// How long a call over the boards takes: a line's way to its reader, and every message read by whoever needs it.
    pub(crate) fn board_s(&self, collective: Collective, size: usize, bytes: usize) -> f64 {
        let published = published_bytes(collective, size, bytes) as f64;
        let (peers, split) =
            ((size - 1) as f64, matches!(collective, Collective::AllToAll | Collective::ReduceScatter));
        let taken = if split { published * peers / size as f64 } else { published * peers };
        let turns = self.costs.message_s / MEMORY_MESSAGE_S;
        self.costs.latency_s + (published + taken) * self.costs.copy_byte_s + peers * BOARD_PEER_S * turns
    }

    /// The prices for one row at one size: rows that keep whole messages of all ranks in scratch pay for memory when
    /// these no longer fit into the cache.
    pub(crate) fn costs_of(&self, row: &Row, size: u32, bytes: usize) -> Costs {
        let spread = if row.name == "direct" { f64::from(size) * bytes as f64 } else { 0.0 };
        let slower = if spread > self.cache_bytes { 4.0 } else { 1.0 };
        Costs {
            fold_byte_s: self.costs.fold_byte_s * slower,
            copy_byte_s: self.costs.copy_byte_s * slower,
            ..self.costs
        }
    }
}

/// What a row costs beside its messages, whatever their length: rows that fold whole messages from scratch make that
/// scratch for each call, and copy their own part into it.
pub(crate) fn scratch_s(row: &Row) -> f64 {
    if row.name == "direct" && row.collective.reduces() { 100e-9 } else { 0.0 }
}
