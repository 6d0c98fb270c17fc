//! What a group of ranks is charged: prices of links, and what sharing cores makes of them.

use crate::algorithm::Row;
use crate::collective::Collective;
use crate::engine::published_bytes;
use crate::schedule::Groups;
use crate::schedule::cost::{Costs, Load};
use crate::topology::{Crossing, Layout, Links};
use paceline_transport::LinkKind;

use super::Prices;
use super::own_core::{self, BOTH_WAYS};

/// The prices of a group of ranks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Machine {
    prices: Prices,
    /// Of a rank that has its core for itself.
    costs: Costs,
    boards: Boards,
    /// How many ranks take turns on a core.
    turns: f64,
    /// Whether ranks' cores move what passes.
    by_core: bool,
    /// What doesn't fit into this leaves the cache, and is paid for as memory.
    cache_bytes: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Boards {
    latency_s: f64,
    peer_s: f64,
    byte_s: f64,
}

/// How much slower copies and folds are that go through memory.
const MEMORY: f64 = 4.0;
/// How much slower a link is whose message is passed on as a whole, from that many bytes on.
const UNCUT: f64 = 1.5;
const UNCUT_BYTES: usize = 256 << 10;
/// How much slower a link is, once messages outgrow the cache, in rows that move several ranks' chunks in one round.
const SPREAD: f64 = 1.1;
/// How much slower an all_to_all over the boards is than its bytes: each is read by one rank only.
const SCATTERED: f64 = 1.4;
/// How much slower the boards are, where ranks share cores, once a message has more bytes than that: the boards of all ranks
/// together don't stay in the cores' own caches.
const CROWDED: f64 = 2.0;
const CROWDED_BYTES: usize = 64 << 10;
/// How much slower a reduce_scatter is, where ranks share cores, whose every message waits for the one before.
const RELAYED: f64 = 1.05;
/// What each length of the message that goes one after another adds to what all ranks do, where they share cores: some
/// wait for it.
const WAITING: f64 = 0.15;
/// What a call through the engine costs beyond one over the boards, whatever it moves.
pub(super) const ENGINE_S: f64 = 30e-9;
/// How much more things cost where ranks share cores.
#[derive(Clone, Copy)]
struct Shared {
    /// A switch between them, for each.
    switch_s: f64,
    /// A link that is full, or empty, is a switch.
    byte: f64,
    /// Whoever looks for a message mostly looks in vain.
    message: f64,
    /// Others have used the caches meanwhile.
    fold: f64,
    /// One more board is looked at while others have the core.
    peer: f64,
}

/// Over memory.
const SHARED: Shared = Shared { switch_s: 0.62e-6, byte: 2.9, message: 1.0, fold: 2.16, peer: 0.57 };
/// Over other links.
const SHARED_BY_OTHERS: Shared = Shared { switch_s: 1e-6, byte: 1.5, message: 3.0, fold: 1.0, peer: 1.0 };
const NOT_SHARED: Shared = Shared { switch_s: 0.0, byte: 1.0, message: 1.0, fold: 1.0, peer: 1.0 };

impl Machine {
    /// The prices where `crowding` ranks share each core.
    ///
    /// Ranks that share a core take turns: what all of them do takes as long as all of them together, and a message costs
    /// a switch between them.
    pub(crate) fn of(prices: &Prices, crowding: u32, slowest: LinkKind) -> Machine {
        let turns = f64::from(crowding.max(1));
        let by_core = matches!(slowest, LinkKind::Inproc | LinkKind::Shm);
        let both_ways = if by_core { BOTH_WAYS } else { 1.0 };
        let Shared { switch_s, byte, message, fold, peer } = match (crowding > 1, by_core) {
            (false, _) => NOT_SHARED,
            (true, true) => SHARED,
            (true, false) => SHARED_BY_OTHERS,
        };
        let costs = Costs {
            latency_s: prices.latency_s + switch_s * turns,
            message_s: prices.message_s * message,
            byte_s: prices.byte_s * both_ways * byte,
            fold_byte_s: prices.fold_byte_s * fold,
            copy_byte_s: prices.copy_byte_s * fold,
        };
        let boards = Boards {
            latency_s: prices.board_latency_s + switch_s * turns,
            peer_s: prices.board_peer_s * peer * turns,
            byte_s: prices.board_byte_s,
        };
        Machine { prices: *prices, costs, boards, turns, by_core, cache_bytes: (1 << 20) as f64 }
    }

    /// Whether each rank's own core moves all that passes.
    fn has_own_cores(&self) -> bool {
        self.by_core && self.turns == 1.0
    }

    /// How long a call over the boards takes: a line's way to its reader, and every message read by whoever needs it.
    pub(crate) fn board_s(&self, collective: Collective, size: usize, bytes: usize) -> f64 {
        if self.has_own_cores() {
            let passes = self.board_bytes(collective, size, bytes);
            return own_core::board_s(&self.prices, collective, size, bytes, passes);
        }
        let Boards { latency_s, peer_s, byte_s } = self.boards;
        let is_long = published_bytes(collective, size, bytes) > CROWDED_BYTES;
        let slower = if is_long && self.turns > 1.0 { CROWDED } else { 1.0 };
        latency_s + self.board_bytes(collective, size, bytes) * byte_s * slower + (size - 1) as f64 * peer_s
    }

    /// How much is published and taken, one after another. What a root does alone, nobody takes turns with.
    fn board_bytes(&self, collective: Collective, size: usize, bytes: usize) -> f64 {
        let published = published_bytes(collective, size, bytes) as f64;
        let (ranks, peers, turns) = (size as f64, (size - 1) as f64, self.turns);
        match collective {
            Collective::AllToAll if size > 2 => (published + bytes as f64 * peers / ranks) * turns * SCATTERED,
            Collective::AllToAll | Collective::ReduceScatter => (published + bytes as f64 * peers / ranks) * turns,
            Collective::Broadcast => published + published * turns,
            Collective::Scatter => published + published / ranks * turns,
            Collective::Reduce | Collective::Gather => published * turns + published * peers,
            _ => (published + published * peers) * turns,
        }
    }

    /// How long a row takes whose message is cut into so many slices.
    pub(crate) fn row_s(&self, row: &Row, size: usize, bytes: usize, n_slices: u32) -> f64 {
        let work = row.work(size as u32);
        let costs = self.costs_of(row, size, bytes);
        if self.has_own_cores() {
            return own_core::row_s(&self.prices, costs, row, size, bytes, n_slices);
        }
        let alone = |costs: &Costs| {
            let uncut_s = if row.moves_runs { work.busiest.copied * bytes as f64 * costs.copy_byte_s } else { 0.0 };
            work.seconds_in_slices(bytes as u64, n_slices, costs) + uncut_s + ENGINE_S + scratch_s(row)
        };
        if row.collective.has_root() && self.turns > 1.0 {
            // Most ranks wait for others: either the path is what takes long, or what all ranks do on few cores.
            let waiting = 1.0 + WAITING * (work.path.sent - 1.0).max(0.0);
            let together = together(row, size, n_slices).seconds(bytes as u64, &costs);
            let together = self.turns / size as f64 * waiting * together;
            return alone(&costs).max(together + work.latencies * costs.latency_s);
        }
        alone(&Costs {
            message_s: costs.message_s * self.turns,
            byte_s: costs.byte_s * self.turns,
            fold_byte_s: costs.fold_byte_s * self.turns,
            copy_byte_s: costs.copy_byte_s * self.turns,
            ..costs
        })
    }

    /// The same between hosts: `self` has the prices of what is between them, `near` of what is within.
    pub(crate) fn levels_s(
        &self,
        near: &Machine,
        row: &Row,
        layout: &Layout,
        crossing: &Crossing,
        bytes: usize,
        n_slices: u32,
    ) -> f64 {
        let size = layout.size() as usize;
        let (far, near) = (self.costs_of(row, size, bytes), near.costs_of(row, size, bytes));
        let turns = self.turns;
        let links = Links {
            near: Costs {
                message_s: near.message_s * turns,
                byte_s: near.byte_s * turns,
                fold_byte_s: near.fold_byte_s * turns,
                copy_byte_s: near.copy_byte_s * turns,
                ..near
            },
            far: Costs { byte_s: far.byte_s / f64::from(layout.adapters()), message_s: far.message_s * turns, ..far },
            at_once: turns == 1.0,
        };
        let crossing = crossing.over_adapters(layout.adapters(), layout.size() / layout.n_hosts());
        crossing.seconds(&row.work_in(layout.groups()), bytes as u64, n_slices, &links) + ENGINE_S + scratch_s(row)
    }

    /// The prices for one row at one size: rows that keep whole messages of all ranks in scratch, and those whose messages
    /// aren't cut into slices, pay for memory when these no longer fit into the cache.
    fn costs_of(&self, row: &Row, size: usize, bytes: usize) -> Costs {
        let spread = if row.name == "direct" && row.collective.reduces() { size as f64 * bytes as f64 } else { 0.0 };
        let memory = if self.has_own_cores() { own_core::MEMORY } else { MEMORY };
        let slower = if spread > self.cache_bytes { memory } else { 1.0 };
        let link = match row.name {
            _ if row.moves_runs && size > 2 && bytes > UNCUT_BYTES => UNCUT,
            "ring" if row.collective == Collective::ReduceScatter && self.turns > 1.0 => RELAYED,
            "direct" if bytes as f64 > self.cache_bytes => SPREAD,
            _ if row.in_levels && bytes as f64 > self.cache_bytes => SPREAD,
            _ => 1.0,
        };
        Costs {
            byte_s: self.costs.byte_s * link,
            fold_byte_s: self.costs.fold_byte_s * slower,
            copy_byte_s: self.costs.copy_byte_s * slower,
            ..self.costs
        }
    }
}

/// What all ranks do in a row from or to a root, with each message counted at both its ends.
fn together(row: &Row, size: usize, n_slices: u32) -> Load {
    let (ranks, others) = (size as f64, (size - 1) as f64);
    let (messages, sent) = match row.collective {
        // On the way up or down a tree, a block is sent once for each level.
        Collective::Gather | Collective::Scatter if row.moves_runs => (others, ranks.log2() / 2.0),
        Collective::Gather | Collective::Scatter => (others, others / ranks),
        _ => (f64::from((row.chunks)(&Groups::assumed(size as u32))) * others, others),
    };
    let folded = if row.collective.reduces() { others } else { 0.0 };
    Load::messages(2.0 * messages * f64::from(n_slices), 2.0 * sent).folding(folded)
}

/// What a row costs beside its messages, whatever their length: rows that fold whole messages from scratch make that
/// scratch for each call, and copy their own part into it.
pub(super) fn scratch_s(row: &Row) -> f64 {
    if row.name == "direct" && row.collective.reduces() { 100e-9 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::super::Facts;
    use super::*;
    use crate::request::CallOptions;
    use paceline_transport::LinkKind;

    /// What is chosen between four ranks of two cores.
    fn chosen(kind: LinkKind, collective: Collective, bytes: usize) -> &'static str {
        let boards = kind != LinkKind::Tcp;
        let prices = Prices::standard(kind);
        let facts = Facts { crowding: 2, slowest: kind, boards, prices, ..Facts::in_process(4) };
        facts.choose(collective, bytes, false, &CallOptions::default()).unwrap().row.name
    }

    #[test]
    fn ranks_that_share_cores_go_by_what_all_of_them_do() {
        for (collective, bytes) in [
            (Collective::AllReduce, 128 << 10),
            (Collective::Broadcast, 32 << 10),
            (Collective::Broadcast, 128 << 10),
            (Collective::Gather, 4 << 20),
            (Collective::Scatter, 4 << 20),
        ] {
            assert_eq!(chosen(LinkKind::Shm, collective, bytes), "direct", "{collective} of {bytes}");
        }
        assert_eq!(chosen(LinkKind::Shm, Collective::Broadcast, 2 << 20), "ring");
        assert_ne!(chosen(LinkKind::Tcp, Collective::Barrier, 0), "direct");
    }

    #[test]
    fn what_is_not_cut_into_slices_is_not_priced_as_if() {
        for kind in [LinkKind::Shm, LinkKind::Tcp] {
            for bytes in [512 << 10, 4 << 20] {
                let name = chosen(kind, Collective::ReduceScatter, bytes);
                assert!(!["circulant", "halving_doubling"].contains(&name), "{kind} {bytes}: {name}");
            }
        }
    }
}
