//! Levels: inside groups of ranks that are near each other, and across them.
//!
//! The groups are the program's: as a rule, what shares a host. Each row lets between groups pass what has to, and no more:
//! of a vector that is reduced, each group's sum; of a block, one copy for each group that needs it. All ranks of a group
//! send their own part of that at once, so that a host's network adapters all work. Groups may differ in size.
//!
//! Inside a group ranks talk in pairs, by distance. The places of a smaller group stand for those of a larger one: place
//! `lane * smaller / larger` for place `lane`.

mod all_reduce;
mod all_to_all;
mod blocks;
mod broadcast;

use std::ops::Range;

use crate::schedule::cost::{Load, Work};
use crate::schedule::{Groups, Level, Program, Rank};

pub use all_reduce::{
    all_reduce, all_reduce_work, chunks, three_level, three_level_chunks, tree, tree_chunks, tree_work,
};
pub use all_to_all::{all_to_all, all_to_all_work};
pub use blocks::{all_gather, all_gather_work, reduce_scatter, reduce_scatter_work};
pub use broadcast::{broadcast, broadcast_chunks, broadcast_work};

/// The place in a group of `size` that stands for a lane, of `lanes`.
fn place_of(lane: u32, lanes: u32, size: u32) -> u32 {
    (u64::from(lane) * u64::from(size) / u64::from(lanes)) as u32
}

/// The lanes that a place in a group of `size` stands for.
fn lanes_of(place: u32, lanes: u32, size: u32) -> Range<u32> {
    let first = |place: u32| (u64::from(place) * u64::from(lanes)).div_ceil(u64::from(size)) as u32;
    first(place)..first(place + 1)
}

/// Where a rank is: its group, and its place in it.
struct Spot<'a> {
    level: Level<'a>,
    group: u32,
    range: Range<Rank>,
    place: u32,
}

impl<'a> Spot<'a> {
    /// In the last level; `None` if that leaves nothing to do inside, or across.
    fn of(p: &Program, groups: &'a Groups) -> Option<Spot<'a>> {
        groups.outermost().filter(|level| !level.is_trivial()).map(|level| Spot::in_level(p.me, level))
    }

    fn in_level(me: Rank, level: Level<'a>) -> Spot<'a> {
        let group = level.group_of(me);
        let range = level.range(group);
        Spot { level, group, place: me - range.start, range }
    }

    /// How many ranks the group has.
    fn size(&self) -> u32 {
        self.range.end - self.range.start
    }

    /// The ranks of `group` whose blocks pass, either way, by the rank at `place` of this one's group.
    fn passing(&self, group: u32, place: u32) -> impl Iterator<Item = Rank> + use<> {
        let theirs = self.level.range(group);
        lanes_of(place, theirs.end - theirs.start, self.size()).map(move |lane| theirs.start + lane)
    }

    /// The rank of `group` by which this rank's blocks pass.
    fn relay(&self, group: u32) -> Rank {
        let theirs = self.level.range(group);
        theirs.start + place_of(self.place, self.size(), theirs.end - theirs.start)
    }

    /// For each distance, the places that this one sends to and receives from.
    fn pairs(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let (place, size) = (self.place, self.size());
        (1..size).map(move |r| ((place + r) % size, (place + size - r) % size))
    }

    /// The same for groups.
    fn group_pairs(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let (group, n) = (self.group, self.level.len());
        (1..n).map(move |r| ((group + r) % n, (group + n - r) % n))
    }
}

/// The size and the number of the assumed groups, where there is something to do inside and across.
fn assumed(n: u32) -> Option<(f64, f64)> {
    let groups = Groups::assumed(n);
    let level = groups.outermost().filter(|level| !level.is_trivial())?;
    Some((f64::from(level.largest()), f64::from(level.len())))
}

/// What a rank does that sends `messages` messages, `sent` together, in as many rounds.
fn in_rounds(messages: f64, sent: f64) -> Work {
    Work::steady(messages, Load::messages(messages, sent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lane_has_one_place() {
        for lanes in 1..40 {
            for size in 1..40 {
                for lane in 0..lanes {
                    let place = place_of(lane, lanes, size);
                    let places: Vec<u32> =
                        (0..size).filter(|place| lanes_of(*place, lanes, size).contains(&lane)).collect();
                    assert_eq!(places, [place], "lane {lane} of {lanes} in a group of {size}");
                }
            }
        }
    }
}
