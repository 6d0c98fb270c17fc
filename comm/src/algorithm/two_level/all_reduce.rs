//! The all-reduce in levels: folded inside, reduced across, gathered inside.
//!
//! In two groups of two for n = 4:
//!
//! ```text
//! all_reduce two_level
//! ranks 4 root 0 chunks 4
//!      | 0                    | 1                    | 2                    | 3                    |
//!    0 | i2..4>1 0..2=i0..2+1 | i0..2>0 2..4=i2..4+0 | i2..4>3 0..2=i0..2+3 | i0..2>2 2..4=i2..4+2 |
//!    1 | 1>2 0+2              | 3>3 2+3              | 0>0 1+0              | 2>1 3+1              |
//!    2 | 0>2 1<2              | 2>3 3<3              | 1>0 0<0              | 3>1 2<1              |
//!    3 | 0..2>1 2..4<1        | 2..4>0 0..2<0        | 0..2>3 2..4<3        | 2..4>2 0..2<2        |
//! ```

use super::super::{double_tree, ring};
use super::{Spot, assumed, in_rounds, lanes_of, place_of};
use crate::schedule::Step::{Recv, RecvReduce, Send};
use crate::schedule::cost::{Load, Work};
use crate::schedule::{Buffer, Groups, Program, Span, View, input, output};

/// How the ranks that stand for a lane, one in each group, reduce it between them.
#[derive(Clone, Copy)]
struct Across {
    write: fn(&mut Program),
    chunks: fn(u32) -> u32,
    /// Whether both ends of each message are in rounds of one number.
    is_in_step: bool,
}

const RING: Across = Across { write: ring::all_reduce, chunks: |n| n, is_in_step: true };
const TREE: Across = Across { write: double_tree::all_reduce, chunks: |_| 2, is_in_step: false };

/// Hosts and what is between them: rings.
pub fn all_reduce(p: &mut Program) {
    let groups = p.groups().outermost_only();
    reduce(p, &groups, RING);
}

/// All levels that there are; rings across the last.
pub fn three_level(p: &mut Program) {
    let groups = p.groups();
    reduce(p, &groups, RING);
}

/// Hosts and what is between them: two trees for each lane.
pub fn tree(p: &mut Program) {
    let groups = p.groups().outermost_only();
    reduce(p, &groups, TREE);
}

/// A vector is cut into one lane for each place in the largest group, and a lane as the rows across need it.
pub fn chunks(groups: &Groups) -> u32 {
    count(&groups.outermost_only(), RING)
}

/// As [`chunks`], level by level.
pub fn three_level_chunks(groups: &Groups) -> u32 {
    count(groups, RING)
}

/// As [`chunks`], with halves for two trees.
pub fn tree_chunks(groups: &Groups) -> u32 {
    count(&groups.outermost_only(), TREE)
}

fn count(groups: &Groups, across: Across) -> u32 {
    match groups.levels().next() {
        Some(level) => level.largest() * count(&groups.as_ranks(), across),
        None => (across.chunks)(groups.size()),
    }
}

fn reduce(p: &mut Program, groups: &Groups, across: Across) {
    if p.size == 1 {
        return;
    }
    let Some(level) = groups.levels().next() else { return (across.write)(p) };
    let (spot, lanes) = (Spot::in_level(p.me, level), level.largest());
    let per_lane = p.chunks / lanes;
    let own = lanes_of(spot.place, lanes, spot.size());
    let part = |span: Span, place: u32| {
        let lanes = lanes_of(place, lanes, spot.size());
        span.part(lanes.start * per_lane, (lanes.end - lanes.start) * per_lane)
    };
    let (inputs, outputs) = (input(0), output(0));
    for (round, (to, from)) in spot.pairs().enumerate() {
        let so_far = if round == 0 { inputs } else { outputs };
        p.round([
            Send { to: spot.range.start + to, source: part(inputs, to) },
            RecvReduce {
                from: spot.range.start + from,
                source: part(so_far, spot.place),
                target: part(outputs, spot.place),
            },
        ]);
    }

    let next = groups.as_ranks();
    let folded = if spot.size() == 1 { Buffer::Input } else { Buffer::Output };
    let view = |lane: u32| {
        let ranks = level.ranges().map(|range| range.start + place_of(lane, lanes, range.end - range.start)).collect();
        View::of(ranks).chunks(per_lane, lane * per_lane, 1).reading(folded)
    };
    let views: Vec<View> = own.map(view).collect();
    let write = |inner: &mut Program| reduce(inner, &next, across);
    match across.is_in_step {
        true => p.side_by_side(&views, write),
        false => views.iter().for_each(|view| p.within(view, write)),
    }

    for (to, from) in spot.pairs() {
        p.round([
            Send { to: spot.range.start + to, source: part(outputs, spot.place) },
            Recv { from: spot.range.start + from, target: part(outputs, from) },
        ]);
    }
}

/// Each rank's part inside, and a ring over its share of it.
pub fn all_reduce_work(n: u32) -> Work {
    let Some((group, n_groups)) = assumed(n) else { return ring::all_reduce_work(n) };
    let rounds = 2.0 * (group - 1.0) + 2.0 * (n_groups - 1.0);
    let sent = 2.0 * (group - 1.0) / group + 2.0 * (n_groups - 1.0) / f64::from(n);
    folding(in_rounds(rounds, sent), sent / 2.0)
}

/// Each rank's part inside, and two trees over its share of it.
pub fn tree_work(n: u32) -> Work {
    let Some((group, n_groups)) = assumed(n) else { return double_tree::all_reduce_work(n) };
    let sent = 2.0 * (group - 1.0) / group;
    let inside = folding(in_rounds(2.0 * (group - 1.0), sent), sent / 2.0);
    let across = double_tree::all_reduce_work(n_groups as u32);
    inside.then(Work { path: share(across.path, group), busiest: share(across.busiest, group), ..across })
}

fn folding(work: Work, folded: f64) -> Work {
    Work { path: work.path.folding(folded), busiest: work.busiest.folding(folded), ..work }
}

/// The same work for a share of the message.
fn share(load: Load, shares: f64) -> Load {
    Load { sent: load.sent / shares, folded: load.folded / shares, copied: load.copied / shares, ..load }
}
