//! Messages: whole, of any length, both ways, from several ranks.

use paceline_tests::world::Wire;
use paceline_tests::{Random, mix, seed};

use crate::traffic::{Arriving, Group, Leaving};

const LENS: [usize; 20] =
    [0, 1, 2, 7, 23, 24, 25, 39, 40, 63, 64, 65, 1000, 4096, 65_535, 65_536, 65_537, 300_000, 1 << 20, (3 << 20) + 5];

/// Simulated links cut messages into so small pieces that the longest would only take long.
fn lens(wire: Wire) -> &'static [usize] {
    if wire == Wire::Sim { &LENS[..18] } else { &LENS }
}

#[test]
fn messages_of_any_length_arrive_whole() {
    for wire in Wire::all() {
        let random = &mut Random::new(mix(seed()));
        let mut group = Group::pair(wire);
        for (number, &len) in lens(wire).iter().enumerate() {
            for (from, to) in [(0, 1), (1, 0)] {
                let mut message = [Leaving::new(from, to, 1, number as u64, len)];
                let mut arriving = [Arriving::of(&message[0])];
                group.carry(&mut message, &mut arriving, random);
            }
        }
    }
}

#[test]
fn both_ways_go_at_once() {
    for wire in Wire::all() {
        let random = &mut Random::new(mix(seed()));
        let mut group = Group::pair(wire);
        for (number, &len) in lens(wire).iter().enumerate() {
            let number = 2 * number as u64;
            let mut leaving = [Leaving::new(0, 1, 1, number, len), Leaving::new(1, 0, 1, number + 1, len + 3)];
            let mut arriving = [Arriving::of(&leaving[0]), Arriving::of(&leaving[1])];
            group.carry(&mut leaving, &mut arriving, random);
        }
    }
}

/// One after the other on one channel, sent as far as there is room before any is read.
#[test]
fn messages_do_not_run_into_one_another() {
    for wire in Wire::all() {
        let random = &mut Random::new(mix(seed()));
        let mut group = Group::pair(wire);
        for turn in 0..20u64 {
            let len = |k: u64| LENS[mix(turn * 100 + k) as usize % 16];
            let mut leaving: Vec<Leaving> = (0..30).map(|k| Leaving::new(0, 1, 7, turn * 100 + k, len(k))).collect();
            let mut arriving: Vec<Arriving> = leaving.iter().map(Arriving::of).collect();
            let (mut next, mut reading) = (0, 0);
            while reading < arriving.len() {
                let mut moved = false;
                while next < leaving.len() && leaving[next].push(&mut group.ends) {
                    moved = true;
                    next += usize::from(leaving[next].done);
                }
                // Reads less than was sent, now and then, so that frames pile up.
                for _ in 0..random.below(12) {
                    if reading < arriving.len() && arriving[reading].pull(&mut group.ends, random) {
                        moved = true;
                        reading += usize::from(arriving[reading].done);
                    }
                }
                if !moved {
                    group.rest();
                }
            }
        }
    }
}

#[test]
fn empty_messages_are_messages() {
    for wire in Wire::all() {
        let random = &mut Random::new(mix(seed()));
        let mut group = Group::pair(wire);
        for number in 0..2000u64 {
            let mut message = [Leaving::new(0, 1, number, number, 0)];
            let mut arriving = [Arriving::of(&message[0])];
            group.carry(&mut message, &mut arriving, random);
        }
        // An empty one between others of its channel is neither lost nor part of them.
        for number in 0..300u64 {
            let len = [0, 5, 0, 0, 70_000][number as usize % 5];
            let mut message = [Leaving::new(1, 0, 3, number, len)];
            let mut arriving = [Arriving::of(&message[0])];
            group.carry(&mut message, &mut arriving, random);
        }
    }
}

#[test]
fn every_pair_has_a_link_of_its_own() {
    for wire in Wire::all() {
        let random = &mut Random::new(mix(seed()));
        let mut group = Group::new(wire, 4);
        for turn in 0..6u64 {
            let pairs = (0..4).flat_map(|from| (0..4).map(move |to| (from, to))).filter(|(from, to)| from != to);
            let number = |from: usize, to: usize| turn * 16 + (from * 4 + to) as u64;
            let message =
                |(from, to): (usize, usize)| Leaving::new(from, to, turn, number(from, to), 10_000 * to + from);
            let mut leaving: Vec<Leaving> = pairs.map(message).collect();
            let mut arriving: Vec<Arriving> = leaving.iter().map(Arriving::of).collect();
            group.carry(&mut leaving, &mut arriving, random);
        }
    }
}
