//! Registered memory over devices: bytes go from where they lie to where they belong, and nobody copies them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use paceline_tests::world::{PATIENCE, Wire, at_once};
use paceline_tests::{Random, mix, seed};
use paceline_transport::rdma::Traffic;
use paceline_transport::rendezvous::Hub;
use paceline_transport::{Channel, Endpoint, Fabric, GroupId, Region, Rendezvous};

use crate::traffic::{Arriving, BOUND, Group, Leaving, bytes, stamp};

const BYTES: usize = 3 << 20;

/// Two ranks, each with registered memory.
fn pair(wire: Wire) -> (Group, Vec<Arc<Region>>, Vec<Arc<Fabric>>) {
    let hub = Hub::new(2);
    let setup = |rank| wire.setup(rank, 2, Rendezvous::Hub(hub.clone()));
    let mut ends = Vec::new();
    let (mut regions, mut fabrics) = (Vec::new(), Vec::new());
    let joined = at_once((0..2).map(setup).collect(), |setup| {
        let (fabric, end) = Fabric::join(&setup).unwrap();
        let shared = fabric.share(GroupId::WORLD, &[0, 1], (1, BYTES), &[], Instant::now() + PATIENCE).unwrap();
        let mine = shared[end.me()].clone().unwrap();
        (fabric, end, mine)
    });
    for (fabric, end, region) in joined {
        ends.push(end);
        regions.push(region);
        fabrics.push(fabric);
    }
    (Group::of(wire, ends), regions, fabrics)
}

#[allow(clippy::mut_from_ref, reason = "a region is an address range")]
fn slice(region: &Region) -> &mut [u8] {
    // SAFETY: the tests touch it from one thread, and each part for one purpose at a time.
    unsafe { std::slice::from_raw_parts_mut(region.start(), region.bytes()) }
}

/// One step of sending; whether anything went.
pub fn push(end: &mut Endpoint, channel: u64, number: u64, message: &[u8], sent: &mut usize) -> bool {
    if *sent == message.len() {
        return false;
    }
    let news = end.send(1 - end.me(), Channel(channel), stamp(number), &message[*sent..]).unwrap();
    *sent += news.unwrap_or(0);
    news.is_some()
}

/// One step of receiving in place; whether anything came.
pub fn pull(end: &mut Endpoint, channel: u64, target: &mut [u8], got: &mut usize) -> bool {
    let peer = 1 - end.me();
    if *got == target.len() || end.head(peer, Channel(channel)).unwrap().is_none() {
        return false;
    }
    let news = end.recv_into(peer, Channel(channel), &mut target[*got..]).unwrap();
    *got += news;
    news > 0
}

/// Sends from rank 0's memory to `target` at rank 1.
pub fn carry(group: &mut Group, number: u64, message: &[u8], target: &mut [u8]) {
    let (mut sent, mut got) = (0, 0);
    target.fill(0);
    while sent < message.len() || got < target.len() {
        let moved = push(&mut group.ends[0], number, number, message, &mut sent);
        if !(pull(&mut group.ends[1], number, target, &mut got) | moved) {
            group.rest();
        }
    }
    assert!(message == target, "message {number} is garbled");
}

#[test]
fn what_is_registered_is_fetched_to_where_it_belongs() {
    for wire in Wire::asked_for(&[Wire::Rdma, Wire::Queues]) {
        let (mut group, regions, _fabrics) = pair(wire);
        let (source, target) = (slice(&regions[0]), slice(&regions[1]));
        source.copy_from_slice(&bytes(7, BYTES));
        let begin = Instant::now();
        // The first messages may be copied: memory is registered meanwhile.
        for number in 0.. {
            let before = Traffic::so_far();
            let (first, len) = (number as usize % 5 * 1001, BYTES - 60_000);
            carry(&mut group, number, &source[first..first + len], &mut target[2 * first..2 * first + len]);
            let now = Traffic::so_far();
            if now.placed - before.placed == len as u64 {
                assert_eq!(now.through_slots_since(&before), 0, "{wire:?}");
                break;
            }
            assert!(begin.elapsed() < BOUND, "{wire:?}: nothing is ever placed");
        }
        // Into memory that isn't registered they go through the link's, from where they lie.
        let mut plain = vec![0; 1 << 20];
        let before = Traffic::so_far();
        carry(&mut group, 1000, &source[..1 << 20], &mut plain);
        let now = Traffic::so_far();
        assert_eq!((now.copied_in - before.copied_in, now.landed - before.landed), (0, 1 << 20), "{wire:?}");
    }
}

/// A message that a slot holds is written from where it lies, and may be changed as soon as it is accepted.
#[test]
fn what_a_slot_holds_is_written_from_where_it_lies() {
    const LEN: usize = 100_000;
    for wire in Wire::asked_for(&[Wire::Rdma, Wire::Queues]) {
        let (mut group, regions, _fabrics) = pair(wire);
        let (source, mut target) = (slice(&regions[0]), vec![0; LEN]);
        let begin = Instant::now();
        for number in 0.. {
            let before = Traffic::so_far();
            let first = number as usize % 7 * 1003;
            let message = bytes(number, LEN);
            source[first..first + LEN].copy_from_slice(&message);
            let (mut sent, mut got) = (0, 0);
            while sent < LEN {
                if !push(&mut group.ends[0], number, number, &source[first..first + LEN], &mut sent) {
                    group.rest();
                }
            }
            source[first..first + LEN].fill(0xee);
            while got < LEN {
                if !pull(&mut group.ends[1], number, &mut target, &mut got) {
                    group.rest();
                }
            }
            assert!(target == message, "{wire:?}: message {number} is garbled");
            let now = Traffic::so_far();
            assert_eq!((now.landed, now.placed), (before.landed, before.placed), "{wire:?}");
            assert_eq!(now.copied_out - before.copied_out, LEN as u64, "{wire:?}");
            // More than slots, so that each is written twice.
            if now.copied_in == before.copied_in && number > 40 {
                break;
            }
            assert!(begin.elapsed() < BOUND, "{wire:?}: nothing is ever written from where it lies");
        }
        // Shorter ones are copied, and ordinary memory is.
        for message in [&source[..10_000], &bytes(1, LEN)[..]] {
            let before = Traffic::so_far();
            carry(&mut group, 1_000_000 + message.len() as u64, message, &mut target[..message.len()]);
            assert_eq!(Traffic::so_far().copied_in - before.copied_in, message.len() as u64, "{wire:?}");
        }
    }
}

/// Whoever wants to read a large message where it arrives says so; and what has only been offered makes way.
#[test]
fn an_offer_can_be_read_in_pieces_and_makes_way() {
    for wire in Wire::asked_for(&[Wire::Rdma, Wire::Queues]) {
        let random = &mut Random::new(mix(seed()));
        let (mut group, regions, _fabrics) = pair(wire);
        let source = slice(&regions[0]);
        source.copy_from_slice(&bytes(8, BYTES));
        std::thread::sleep(Duration::from_millis(200));
        let message = &source[5..5 + (2 << 20)];
        let (mut sent, mut got) = (0, Vec::new());
        push(&mut group.ends[0], 1, 1, message, &mut sent);
        let mut small = Leaving::new(0, 1, 2, 77, 100);
        let mut arriving = Arriving::of(&small);
        let mut asides = 0;
        while sent < message.len() || got.len() < message.len() || !arriving.done {
            let mut moved = push(&mut group.ends[0], 1, 1, message, &mut sent) | small.push(&mut group.ends);
            if !arriving.done {
                moved |= arriving.pull(&mut group.ends, random);
                if !moved && group.ends[1].set_aside(0, Channel(2)).unwrap().is_some() {
                    (moved, asides) = (true, asides + 1);
                }
            } else if let Some(head) = group.ends[1].head(0, Channel(1)).unwrap() {
                got.extend_from_slice(head.bytes);
                let here = head.bytes.len();
                if here == 0 {
                    group.ends[1].show(0, Channel(1));
                } else {
                    group.ends[1].advance(0, Channel(1), here);
                    moved = true;
                }
            }
            if !moved {
                group.rest();
            }
        }
        assert!(got == message && asides > 0, "{wire:?}");
    }
}
