//! Channels: messages that interleave, and frames that are moved out of the way.

use paceline_tests::world::Wire;
use paceline_tests::{Random, is_asked_for, mix, seed};
use paceline_transport::Channel;

use crate::traffic::{Arriving, Group, Leaving, stamp};

/// Large messages on several channels, none of which fits into the link: they interleave for want of room. Whoever waits
/// for one of them moves the others aside.
#[test]
fn unfinished_messages_of_several_channels_interleave() {
    let turns = if is_asked_for("PACELINE_TEST_FEW") { 1 } else { 3u64 };
    for wire in Wire::all() {
        let random = &mut Random::new(mix(seed()));
        let mut group = Group::pair(wire);
        for turn in 0..turns {
            let least = if wire == Wire::Sim { 100_000 } else { 3_000_000 };
            let len = |k: u64| least + k as usize * 12_345;
            let mut leaving: Vec<Leaving> = (0..4).map(|k| Leaving::new(0, 1, 10 + k, turn * 4 + k, len(k))).collect();
            let mut arriving: Vec<Arriving> = leaving.iter().map(Arriving::of).collect();
            // The last one is waited for first.
            while !arriving.iter().all(|message| message.done) {
                let mut moved = false;
                for message in &mut leaving {
                    moved |= message.push(&mut group.ends);
                }
                let waiting = arriving.iter().rposition(|message| !message.done).expect("not all are done");
                moved |= arriving[waiting].pull(&mut group.ends, random);
                if !moved {
                    let channel = arriving[waiting].channel;
                    match group.ends[1].set_aside(0, channel).unwrap() {
                        Some((foreign, _)) => assert_ne!(foreign, channel),
                        None => group.rest(),
                    }
                }
            }
            assert!(leaving.iter().all(|message| message.done));
        }
    }
}

#[test]
fn what_is_set_aside_keeps_its_order() {
    for wire in Wire::all() {
        let random = &mut Random::new(mix(seed()));
        let mut group = Group::pair(wire);
        let lens = [5, 0, 9, 30, 0, 1];
        // Channels 1 and 2 by turns; then one frame that somebody waits for.
        let mut early: Vec<Leaving> = (0..6u64).map(|k| Leaving::new(0, 1, 1 + k % 2, k, lens[k as usize])).collect();
        let mut awaited = Leaving::new(0, 1, 3, 100, 8);
        for message in early.iter_mut().chain([&mut awaited]) {
            while !message.done {
                if !message.push(&mut group.ends) {
                    group.rest();
                }
            }
        }
        group.settle();
        assert!(group.ends[1].head(0, Channel(3)).unwrap().is_none(), "{wire:?}: frames lie before it");
        let mut moved: Vec<_> = std::iter::from_fn(|| group.ends[1].set_aside(0, Channel(3)).unwrap()).collect();
        // A message may be several frames.
        moved.dedup();
        let want: Vec<_> = (0..6u64).map(|k| (Channel(1 + k % 2), stamp(k))).collect();
        assert_eq!(moved, want, "{wire:?}");
        let mut arriving = Arriving::of(&awaited);
        while !arriving.done {
            arriving.pull(&mut group.ends, random);
        }
        assert_eq!(group.ends[1].set_aside(0, Channel(3)).unwrap(), None, "{wire:?}: nothing is there");
        // What comes later on those channels comes after what was set aside.
        let mut late = [Leaving::new(0, 1, 1, 50, 70), Leaving::new(0, 1, 2, 51, 3)];
        for message in &mut late {
            while !message.done {
                if !message.push(&mut group.ends) {
                    group.rest();
                }
            }
        }
        group.settle();
        for channel in [2, 1] {
            for message in early.iter().chain(&late).filter(|message| message.channel == Channel(channel)) {
                let mut arriving = Arriving::of(message);
                while !arriving.done {
                    if !arriving.pull(&mut group.ends, random) {
                        // The late one of channel 1 lies before that of channel 2.
                        group.ends[1].set_aside(0, Channel(channel)).unwrap().expect("something is in the way");
                    }
                }
            }
        }
    }
}

/// Nobody waits for a channel whose frames have been set aside in part: the rest follows them.
#[test]
fn a_message_may_be_set_aside_in_parts() {
    for wire in Wire::all() {
        let random = &mut Random::new(mix(seed()));
        let mut group = Group::pair(wire);
        let mut first = Leaving::new(0, 1, 1, 1, 200_000);
        let mut arriving = Arriving::of(&first);
        let mut asides = 0;
        while asides < 3 || !first.done {
            let moved = first.push(&mut group.ends);
            if asides < 3 && group.ends[1].set_aside(0, Channel(9)).unwrap().is_some() {
                asides += 1;
            } else if asides == 3 {
                arriving.pull(&mut group.ends, random);
            }
            if !moved {
                group.rest();
            }
            assert!(!first.done || asides > 0, "{wire:?}: nothing was set aside");
            if first.done {
                break;
            }
        }
        while !arriving.done {
            if !arriving.pull(&mut group.ends, random) {
                group.rest();
            }
        }
    }
}
