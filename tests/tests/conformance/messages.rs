//! Messages between two ranks: of any length, in order, both ways at once, to oneself.

use paceline_comm::{CallOptions, ErrorKind};
use paceline_tests::world::{Wire, at_once, on_each, world};
use paceline_tests::{Random, mix, seed};

fn message(from: usize, to: usize, number: usize, len: usize) -> Vec<u32> {
    let mut random = Random::new(mix((from as u64) << 40 | (to as u64) << 20 | number as u64));
    (0..len).map(|_| random.next() as u32).collect()
}

#[test]
fn messages_arrive_whole_and_in_order() {
    let lens = [0, 1, 3, 11, 12, 13, 0, 255, 4096, 33_000, 1, 700_001, 0];
    for wire in Wire::threads() {
        on_each(wire, 2, |comm| {
            let (me, peer) = (comm.rank(), 1 - comm.rank());
            for (number, len) in lens.into_iter().enumerate() {
                let mut arrived = vec![0; len];
                for turn in [me, peer] {
                    match turn {
                        0 => comm.send(&message(me, peer, number, len), peer).unwrap(),
                        _ => {
                            comm.recv(&mut arrived, peer).unwrap();
                            assert_eq!(arrived, message(peer, me, number, len), "{wire:?}, {len} elements");
                        }
                    }
                }
            }
        });
    }
}

/// Many small ones that nobody waits for meanwhile: they must not overtake one another.
#[test]
fn a_burst_of_messages_keeps_its_order() {
    for wire in Wire::threads() {
        on_each(wire, 3, |comm| {
            let me = comm.rank();
            let len = |number: usize| number * 7 % 50;
            if me == 0 {
                for number in 0..200 {
                    (1..3).for_each(|to| comm.send(&message(0, to, number, len(number)), to).unwrap());
                }
            } else {
                for number in 0..200 {
                    let mut arrived = vec![0; len(number)];
                    comm.recv(&mut arrived, 0).unwrap();
                    assert_eq!(arrived, message(0, me, number, len(number)), "{wire:?}, message {number}");
                }
            }
            comm.barrier().unwrap();
        });
    }
}

#[test]
fn send_recv_turns_in_a_ring_and_meets_itself() {
    for wire in Wire::threads() {
        for ranks in [1, 2, 3, 5] {
            on_each(wire, ranks, |comm| {
                let me = comm.rank();
                // Every rank sends messages of a length of its own; so large ones that all must send and receive at once.
                for (number, scale) in [0, 1, 100, 50_000].into_iter().enumerate() {
                    for shift in 0..ranks {
                        let (to, from) = ((me + shift) % ranks, (me + ranks - shift) % ranks);
                        let mut arrived = vec![0; scale * (from + 1)];
                        comm.send_recv(&message(me, to, number, scale * (me + 1)), to, &mut arrived, from).unwrap();
                        assert_eq!(arrived, message(from, me, number, scale * (from + 1)));
                    }
                }
            });
        }
    }
}

#[test]
fn two_threads_send_and_receive_on_one_communicator() {
    for wire in Wire::threads() {
        on_each(wire, 2, |comm| {
            let (me, peer) = (comm.rank(), 1 - comm.rank());
            let len = |number: usize| [1, 300, 70_000, 0][number % 4];
            std::thread::scope(|scope| {
                scope.spawn(|| (0..60).for_each(|k| comm.send(&message(me, peer, k, len(k)), peer).unwrap()));
                scope.spawn(|| {
                    for number in 0..60 {
                        let mut arrived = vec![0; len(number)];
                        comm.recv(&mut arrived, peer).unwrap();
                        assert_eq!(arrived, message(peer, me, number, len(number)), "{wire:?}, message {number}");
                    }
                });
            });
        });
    }
}

/// A random walk over all pairs, the same on all ranks.
#[test]
fn messages_and_collectives_may_take_turns() {
    for wire in Wire::threads() {
        on_each(wire, 4, |comm| {
            let me = comm.rank();
            let random = &mut Random::new(mix(seed()));
            for number in 0..150 {
                let from = random.below(4) as usize;
                let to = (from + 1 + random.below(3) as usize) % 4;
                let len = random.below(2000) as usize;
                if me == from {
                    comm.send(&message(from, to, number, len), to).unwrap();
                } else if me == to {
                    let mut arrived = vec![0; len];
                    comm.recv(&mut arrived, from).unwrap();
                    assert_eq!(arrived, message(from, to, number, len), "{wire:?}, message {number}, seed {}", seed());
                }
                if random.chance(200) {
                    let mut total = [1u64];
                    comm.all_reduce_in_place(&mut total, paceline_comm::ReduceOp::Sum).unwrap();
                    assert_eq!(total, [4]);
                }
            }
        });
    }
}

#[test]
fn a_message_that_nobody_sends_ends_with_its_timeout() {
    let ranks = world(Wire::Inproc, 2);
    let ends = at_once(ranks, |comm| {
        if comm.rank() == 1 {
            // Stays until rank 0 has given up and told.
            return comm.barrier().unwrap_err();
        }
        let hasty = comm.with(CallOptions { timeout: Some(std::time::Duration::from_millis(50)), algorithm: None });
        hasty.recv(&mut [0u8; 5], 1).unwrap_err()
    });
    assert!(ends.iter().all(|error| error.kind() == ErrorKind::Timeout), "{ends:?}");
    assert!(ends[0].to_string().contains("recv #1"), "{}", ends[0]);
    assert_eq!(ends[1].reporter(), Some(0), "{}", ends[1]);
}
