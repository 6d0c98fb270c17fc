//! The all-to-all in levels: to a neighbour that stands for the reader, then all its group has for the reader at once.
//!
//! No byte less passes between groups than without levels, but fewer and longer messages.

use super::super::pairwise;
use super::{Spot, assumed};
use crate::schedule::Step::{Copy, Recv, Send};
use crate::schedule::cost::{Load, Work};
use crate::schedule::{Program, Rank, input, output, scratch};

impl Spot<'_> {
    /// All ranks of other groups for which the rank at `place` of this one's group collects.
    fn readers(&self, place: u32) -> impl Iterator<Item = Rank> + '_ {
        (0..self.level.len()).filter(|group| *group != self.group).flat_map(move |group| self.passing(group, place))
    }
}

/// Blocks of one length only: those of others that a rank collects have the length of its own.
pub fn all_to_all(p: &mut Program) {
    let groups = p.groups();
    let Some(spot) = Spot::of(p, &groups) else { return pairwise::all_to_all(p) };
    let (me, first, size) = (p.me, spot.range.start, spot.size());
    let mine: Vec<Rank> = spot.readers(spot.place).collect();
    // For each reader a run of slots, one for each place of this group.
    let run = |reader: Rank| {
        let slot = mine.binary_search(&reader).expect("this rank collects for it") as u32;
        scratch(slot * size, 0)
    };
    let kept = |reader: Rank, place: u32| run(reader).run(size).part(place, 1);
    let own = Copy { source: input(me), target: output(me) };
    let copies = mine.iter().map(|reader| Copy { source: input(*reader), target: kept(*reader, spot.place) });
    p.round([own].into_iter().chain(copies).collect::<Vec<_>>());
    for (to, from) in spot.pairs() {
        let (next, before) = (first + to, first + from);
        let sends = [next].into_iter().chain(spot.readers(to)).map(|reader| Send { to: next, source: input(reader) });
        let own = Recv { from: before, target: output(before) };
        let receives = mine.iter().map(|reader| Recv { from: before, target: kept(*reader, from) });
        p.round(sends.chain([own]).chain(receives).collect::<Vec<_>>());
    }
    for (to, from) in spot.group_pairs() {
        let sends = spot.passing(to, spot.place).map(|reader| Send { to: reader, source: run(reader).run(size) });
        let theirs = spot.level.range(from);
        let all = output(theirs.start).run(theirs.end - theirs.start);
        let receive = Recv { from: spot.relay(from), target: all };
        p.round(sends.chain([receive]).collect::<Vec<_>>());
    }
}

/// Blocks for one rank of every group to each neighbour, then a group's blocks to each other group.
pub fn all_to_all_work(n: u32) -> Work {
    let Some((group, n_groups)) = assumed(n) else { return pairwise::all_to_all_work(n) };
    let whole = f64::from(n);
    let (inside, across) = (n_groups * (group - 1.0), n_groups - 1.0);
    let load = Load::messages(inside + across, (inside + across * group) / whole).copying(n_groups / whole);
    let path = load.copying(n_groups / whole);
    Work { latencies: group + n_groups - 2.0, path, busiest: load }
}
