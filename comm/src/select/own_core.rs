//! What calls take between ranks of a host that have a core each: their cores move all that passes.

use crate::algorithm::Row;
use crate::collective::Collective;
use crate::engine::published_bytes;
use crate::schedule::cost::{Costs, Work};

use super::Prices;
use super::costs::{ENGINE_S, scratch_s};

/// How much longer a byte takes where a rank sends and receives, one after the other, than where one rank sends while the
/// other receives.
pub(super) const BOTH_WAYS: f64 = 1.5;
/// How much slower copies and folds are that go through memory.
pub(super) const MEMORY: f64 = 2.0;
/// Shorter messages are written before anyone reads them.
const AT_ONCE_BYTES: u64 = 128 << 10;
/// What fits into the line of a heading costs nothing beyond it.
const IN_LINE_BYTES: u64 = 24;
/// How much of their time long messages on a board take that one rank publishes and others take, where the next call begins
/// meanwhile.
const HANDED_ON: f64 = 0.8;
/// How much of a fold's time comes on top of receiving, where the sender is busy writing meanwhile.
const FOLDED: f64 = 0.7;
/// How much more a call takes whose messages are gathered and spread again.
const PACKED_S: f64 = 60e-9;

/// How long a call over the boards takes, for so many bytes that are published and taken one after another.
pub(super) fn board_s(prices: &Prices, collective: Collective, size: usize, bytes: usize, passes: f64) -> f64 {
    let published = published_bytes(collective, size, bytes) as u64;
    let payload_s = if published > IN_LINE_BYTES { prices.payload_s } else { 0.0 };
    let is_handed_on = collective == Collective::Broadcast && published > AT_ONCE_BYTES;
    let passes = if is_handed_on { passes * HANDED_ON } else { passes };
    prices.board_latency_s + payload_s + passes * prices.board_byte_s + (size - 1) as f64 * prices.board_peer_s
}

/// How long a row takes whose message is cut into so many slices, over links. `costs` are the row's, both ways.
pub(super) fn row_s(prices: &Prices, costs: Costs, row: &Row, size: usize, bytes: usize, n_slices: u32) -> f64 {
    let slice = (bytes as u64).div_ceil(u64::from(n_slices));
    let mut work = row.work(size as u32);
    if row.collective == Collective::Broadcast {
        // It is in place.
        work.busiest.copied = 0.0;
    }
    let payload_s = if slice > IN_LINE_BYTES * size as u64 { prices.payload_s } else { 0.0 };
    let both_ways = Costs { message_s: costs.message_s + payload_s, ..costs };
    let one_way =
        Costs { byte_s: both_ways.byte_s / BOTH_WAYS, fold_byte_s: both_ways.fold_byte_s * FOLDED, ..both_ways };
    let is_one_way = row.collective.has_root() && slice > AT_ONCE_BYTES;
    let path = if is_one_way { &one_way } else { &both_ways };
    let busiest = if is_one_way && size == 2 { &one_way } else { &both_ways };
    let moving_s = work.seconds(slice, path) + f64::from(n_slices - 1) * work.busiest.seconds(slice, busiest);
    moving_s + copied_s(&costs, row, &work, slice) + ENGINE_S + scratch_s(row)
}

/// What a rank copies beside what its path has: nobody does it meanwhile.
fn copied_s(costs: &Costs, row: &Row, work: &Work, slice: u64) -> f64 {
    let is_packed = row.moves_runs && !row.collective.has_root();
    let slower = if is_packed && slice > 1 << 20 { MEMORY } else { 1.0 };
    let packed_s = if is_packed && row.collective == Collective::AllToAll { PACKED_S } else { 0.0 };
    (work.busiest.copied - work.path.copied).max(0.0) * slice as f64 * costs.copy_byte_s * slower + packed_s
}
