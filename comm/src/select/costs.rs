//! What a group of ranks is charged: prices of links, and what sharing cores makes of them.

use crate::algorithm::Row;
use crate::collective::Collective;
use crate::engine::published_bytes;
use crate::schedule::cost::Costs;

use super::Prices;

/// The prices of a group of ranks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Machine {
    costs: Costs,
    boards: Boards,
    /// Scratch beyond this leaves the cache, and is paid for as memory.
    cache_bytes: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Boards {
    latency_s: f64,
    peer_s: f64,
    byte_s: f64,
}

impl Machine {
    /// The prices where `crowding` ranks share each core.
    ///
    /// Ranks that share a core take turns: whatever a rank does takes as long as all of them together, and a message costs
    /// a switch between them.
    pub(crate) fn of(prices: &Prices, crowding: u32) -> Machine {
        let turns = f64::from(crowding.max(1));
        let switches_s = if crowding > 1 { 1e-6 * turns } else { 0.0 };
        let costs = Costs {
            latency_s: prices.latency_s + switches_s,
            message_s: prices.message_s * turns,
            byte_s: prices.byte_s * turns,
            fold_byte_s: prices.fold_byte_s * turns,
            copy_byte_s: prices.copy_byte_s * turns,
        };
        let boards = Boards {
            latency_s: prices.board_latency_s + switches_s,
            peer_s: prices.board_peer_s * turns,
            byte_s: prices.board_byte_s * turns,
        };
        Machine { costs, boards, cache_bytes: (1 << 20) as f64 }
    }

    /// How long a call over the boards takes: a line's way to its reader, and every message read by whoever needs it.
    pub(crate) fn board_s(&self, collective: Collective, size: usize, bytes: usize) -> f64 {
        let Boards { latency_s, peer_s, byte_s } = self.boards;
        latency_s + board_bytes(collective, size, bytes) * byte_s + (size - 1) as f64 * peer_s
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

/// How much a rank publishes and takes in a call over the boards.
fn board_bytes(collective: Collective, size: usize, bytes: usize) -> f64 {
    let published = published_bytes(collective, size, bytes) as f64;
    let (ranks, peers) = (size as f64, (size - 1) as f64);
    let taken = match collective {
        Collective::AllToAll | Collective::ReduceScatter => published * peers / ranks,
        Collective::Scatter => published / ranks,
        _ => published * peers,
    };
    published + taken
}

/// What a row costs beside its messages, whatever their length: rows that fold whole messages from scratch make that
/// scratch for each call, and copy their own part into it.
pub(crate) fn scratch_s(row: &Row) -> f64 {
    if row.name == "direct" && row.collective.reduces() { 100e-9 } else { 0.0 }
}
