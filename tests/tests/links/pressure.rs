//! Room: a link takes so much and no more, says so without waiting, and goes on when there is room again.

use std::time::Instant;

use paceline_tests::world::Wire;
use paceline_tests::{Random, mix, seed};
use paceline_transport::{Channel, Stamp};

use crate::traffic::{Arriving, BOUND, Group, Leaving, bytes};

/// What a link may hold that nobody reads.
fn held_max(wire: Wire) -> usize {
    match wire {
        Wire::Sim => 512 << 10,
        // Slots; a device's memory is locked, so there are few.
        Wire::Rdma => 4 << 20,
        Wire::Queues => 16 << 20,
        Wire::Inproc | Wire::Shm | Wire::Tcp | Wire::Streams => 64 << 20,
    }
}

#[test]
fn a_link_that_nobody_reads_takes_a_bounded_number_of_bytes() {
    for wire in Wire::all() {
        let random = &mut Random::new(mix(seed()));
        let mut group = Group::pair(wire);
        let len = 2 * held_max(wire);
        let mut message = Leaving::new(0, 1, 1, 1, len);
        let mut arriving = Arriving::of(&message);
        for turn in 0..3 {
            let begin = Instant::now();
            // Full is when it is full now and a little later.
            for _ in 0..3 {
                while message.push(&mut group.ends) {}
                group.settle();
            }
            let held = message.sent - arriving.got.len();
            assert!(0 < held && held < len / 2, "{wire:?}, turn {turn}: {held} bytes were taken");
            assert!(begin.elapsed() < BOUND, "{wire:?}: took {:?}", begin.elapsed());
            let before = message.sent;
            while arriving.got.len() < before {
                if !arriving.pull(&mut group.ends, random) {
                    group.rest();
                }
            }
        }
        group.carry(&mut [message], &mut [arriving], random);
    }
}

/// Small frames take room as well.
#[test]
fn messages_that_nobody_reads_come_to_an_end() {
    for wire in Wire::all() {
        for len in [0, 1, 24, 100] {
            let random = &mut Random::new(mix(seed()));
            let mut group = Group::pair(wire);
            let message = bytes(3, len);
            let (channel, stamp) = (Channel(4), Stamp([1, 2]));
            let mut n_sent = 0u64;
            while group.ends[0].send(1, channel, stamp, &message).unwrap() == Some(len) {
                n_sent += 1;
                assert!(n_sent < 2_000_000, "{wire:?}: {n_sent} messages of {len} bytes were taken");
            }
            // What was taken is there, and nothing else: a message taken in part is not presented again here, so the
            // last may stay unfinished.
            for _ in 0..n_sent {
                let mut arriving =
                    Arriving { at: 1, from: 0, channel, stamp, want: message.clone(), got: Vec::new(), done: false };
                while !arriving.done {
                    if !arriving.pull(&mut group.ends, random) {
                        group.rest();
                    }
                }
            }
        }
    }
}
