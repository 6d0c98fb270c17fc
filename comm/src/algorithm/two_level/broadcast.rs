//! The broadcast in levels: dealt out inside the root's group, passed from group to group, gathered inside.

use super::super::scatter_ring;
use super::{Spot, assumed, lanes_of, place_of};
use crate::schedule::Step::{Copy, Recv, Send};
use crate::schedule::cost::{Load, Work};
use crate::schedule::{Groups, Program, Span, input, output};

/// One chunk for each place in the largest group.
pub fn broadcast_chunks(groups: &Groups) -> u32 {
    match groups.outermost().filter(|level| !level.is_trivial()) {
        Some(level) => level.largest(),
        None => groups.size(),
    }
}

/// Each lane goes along a chain of groups, from the root's on. Slices follow one another.
pub fn broadcast(p: &mut Program) {
    let groups = p.groups();
    let Some(spot) = Spot::of(p, &groups) else { return scatter_ring::broadcast(p) };
    let (lanes, n_groups) = (p.chunks, spot.level.len());
    let part = |span: Span, place: u32, size: u32| {
        let lanes = lanes_of(place, lanes, size);
        span.part(lanes.start, lanes.end - lanes.start)
    };
    let (first, size) = (spot.range.start, spot.size());
    let root_group = spot.level.group_of(p.root);
    let distance = (spot.group + n_groups - root_group) % n_groups;
    let is_root = p.me == p.root;
    if is_root {
        let all = Copy { source: input(0).run(lanes), target: output(0).run(lanes) };
        let places = (0..size).filter(|place| *place != spot.place);
        let sends = places.map(|place| Send { to: first + place, source: part(input(0), place, size) });
        p.round(sends.chain([all]).collect::<Vec<_>>());
    } else if distance == 0 {
        p.round([Recv { from: p.root, target: part(output(0), spot.place, size) }]);
    }
    let neighbour = |group: u32, lane: u32| {
        let range = spot.level.range(group % n_groups);
        range.start + place_of(lane, lanes, range.end - range.start)
    };
    let own = lanes_of(spot.place, lanes, size);
    if distance > 0 {
        let before = spot.group + n_groups - 1;
        p.round(
            own.clone().map(|lane| Recv { from: neighbour(before, lane), target: output(lane) }).collect::<Vec<_>>(),
        );
    }
    if distance + 1 < n_groups {
        let source = |lane: u32| if is_root { input(lane) } else { output(lane) };
        let next = spot.group + 1;
        p.round(own.map(|lane| Send { to: neighbour(next, lane), source: source(lane) }).collect::<Vec<_>>());
    }
    for (to, from) in spot.pairs() {
        let to = first + to;
        let is_complete = |rank: u32| rank == p.root;
        let send = Send { to, source: part(output(0), spot.place, size) };
        let from = first + from;
        let receive = Recv { from, target: part(output(0), from - first, size) };
        let send = (!is_complete(to)).then_some(send);
        let receive = (!is_root).then_some(receive);
        p.round(send.into_iter().chain(receive));
    }
}

/// The root's parts to its neighbours, one part along the chain, the parts of all neighbours.
pub fn broadcast_work(n: u32) -> Work {
    let Some((group, n_groups)) = assumed(n) else { return scatter_ring::broadcast_work(n) };
    let (inside, part) = (group - 1.0, 1.0 / group);
    let messages = 2.0 * inside + n_groups - 1.0;
    let path = Load::messages(messages, messages * part);
    let busiest = Load::messages(2.0 * inside + 1.0, (2.0 * inside + 1.0) * part).copying(1.0);
    Work { latencies: 1.0 + inside + n_groups - 1.0, path, busiest }
}
