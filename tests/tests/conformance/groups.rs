//! Groups: several calls as one, in any order.

use paceline_comm::{ErrorKind, ReduceOp};
use paceline_tests::world::{Wire, at_once, on_each, world};
use paceline_tests::{Random, mix, seed};

#[test]
fn sends_and_receives_of_a_group_may_come_in_any_order() {
    const RANKS: usize = 4;
    for wire in Wire::threads() {
        on_each(wire, RANKS, |comm| {
            let me = comm.rank();
            let len = |from: usize, to: usize, k: usize| (from * 5 + to * 3 + k * 2000) % 4000;
            let named = |from: usize, to: usize, k: usize| vec![(from * 100 + to * 10 + k) as u32; len(from, to, k)];
            for turn in 0..10u64 {
                // Two messages for each pair, each rank itself included: the second is the second for both.
                let leaving: Vec<Vec<u32>> = (0..2 * RANKS).map(|i| named(me, i / 2, i % 2)).collect();
                let mut arriving: Vec<Vec<u32>> = (0..2 * RANKS).map(|i| vec![0; len(i / 2, me, i % 2)]).collect();
                let random = &mut Random::new(mix(seed() ^ turn << 8 ^ me as u64));
                let mut group = comm.group();
                let mut sends = leaving.iter().enumerate().peekable();
                let mut receives = arriving.iter_mut().enumerate().peekable();
                while sends.peek().is_some() || receives.peek().is_some() {
                    if random.chance(500) {
                        sends.next().map(|(i, message)| group.send(message, i / 2));
                    } else {
                        receives.next().map(|(i, message)| group.recv(message, i / 2));
                    }
                }
                assert_eq!(group.len(), 4 * RANKS);
                group.run().unwrap();
                for (i, message) in arriving.iter().enumerate() {
                    assert_eq!(*message, named(i / 2, me, i % 2), "{wire:?}, turn {turn}, seed {}", seed());
                }
            }
        });
    }
}

#[test]
fn fifty_all_reduces_go_as_one() {
    for wire in Wire::threads() {
        for ranks in [1, 2, 3] {
            on_each(wire, ranks, |comm| {
                let mut buffers: Vec<Vec<f32>> = (0..50).map(|k| vec![k as f32; 1 + k * k * 20]).collect();
                let inputs = buffers.clone();
                let mut outputs: Vec<Vec<f32>> = inputs.iter().map(|input| vec![0.0; input.len()]).collect();
                let mut group = comm.group();
                for (k, ((buffer, input), output)) in buffers.iter_mut().zip(&inputs).zip(&mut outputs).enumerate() {
                    match k % 3 {
                        0 => group.all_reduce_in_place(buffer, ReduceOp::Sum),
                        1 => group.all_reduce(input, output, ReduceOp::Sum),
                        _ => group.broadcast(buffer, k % ranks),
                    };
                }
                group.run().unwrap();
                for k in 0..50 {
                    let want = vec![k as f32 * if k % 3 == 2 { 1.0 } else { ranks as f32 }; inputs[k].len()];
                    let have = if k % 3 == 1 { &outputs[k] } else { &buffers[k] };
                    assert_eq!(*have, want, "{wire:?}, call {k} over {ranks} ranks");
                }
            });
        }
    }
}

#[test]
fn a_group_begins_wholly_or_not_at_all() {
    on_each(Wire::Inproc, 2, |comm| {
        let (mut one, mut two) = ([1u8; 4], [0u8; 2]);
        let mut group = comm.group();
        group.all_reduce_in_place(&mut one, ReduceOp::Sum).all_reduce(&[1; 4], &mut two, ReduceOp::Sum);
        let error = group.run().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("the output of all_reduce has 2 bytes but 4 are needed"), "{error}");
        assert_eq!(one, [1; 4]);
        // Nothing of it is in the way of what follows.
        comm.all_reduce_in_place(&mut one, ReduceOp::Sum).unwrap();
        assert_eq!(one, [2; 4]);
        comm.group().run().unwrap();
    });
}

#[test]
fn a_lone_half_of_a_message_to_oneself_is_refused() {
    on_each(Wire::Inproc, 2, |comm| {
        let (message, mut arrived) = ([7u8; 3], [0u8; 3]);
        let me = comm.rank();
        let mut group = comm.group();
        group.send(&message, me);
        assert_eq!(group.run().unwrap_err().kind(), ErrorKind::InvalidArgument);
        let mut group = comm.group();
        group.recv(&mut arrived, me);
        assert_eq!(group.run().unwrap_err().kind(), ErrorKind::InvalidArgument);
        let mut short = [0u8; 2];
        let mut group = comm.group();
        group.recv(&mut short, me).send(&message, me);
        let error = group.run().unwrap_err();
        assert!(error.to_string().contains("sends itself 3 elements but expects 2"), "{error}");
        let (numbers, mut floats) = ([7i32; 3], [0f32; 3]);
        let mut group = comm.group();
        group.send(&numbers, me).recv(&mut floats, me);
        let error = group.run().expect_err("of other types");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        comm.barrier().unwrap();
    });
}

/// Small calls of a group go one after the other; more shapes than are remembered, and all remembered.
#[test]
fn a_group_of_small_calls_gives_what_single_calls_give() {
    for wire in Wire::threads() {
        for (ranks, shapes) in [(2, 1), (3, 4), (4, 40)] {
            on_each(wire, ranks, |comm| {
                let of = |k: usize, at: usize| 0.1f32 + (comm.rank() * 7 + k * 3 + at) as f32 / 3.0;
                let input: Vec<Vec<f32>> =
                    (0..50).map(|k| (0..1 + k % shapes * 9).map(|at| of(k, at)).collect()).collect();
                for turn in 0..3 {
                    let mut together: Vec<Vec<f32>> = input.iter().map(|input| vec![0.0; input.len()]).collect();
                    let mut group = comm.group();
                    for (input, output) in input.iter().zip(&mut together) {
                        group.all_reduce(input, output, ReduceOp::Sum);
                    }
                    group.run().unwrap();
                    for (k, (input, together)) in input.iter().zip(&together).enumerate() {
                        let mut alone = vec![0.0; input.len()];
                        comm.all_reduce(input, &mut alone, ReduceOp::Sum).unwrap();
                        let bits = |of: &[f32]| of.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
                        assert_eq!(bits(together), bits(&alone), "{wire:?}, {ranks} ranks, turn {turn}, call {k}");
                    }
                }
            });
        }
    }
}

/// More calls than boards have slots, of which a rank publishes many before it finishes the first; now and then a rank comes
/// so late that the others sleep.
#[test]
fn ranks_of_a_group_may_get_ahead_of_each_other() {
    const CALLS: usize = 150;
    for ranks in [3, 4] {
        on_each(Wire::Inproc, ranks, |comm| {
            let me = comm.rank();
            let length = |k: usize| if k % 29 == 28 { 20_000 } else { 1 + k % 7 * 40 };
            let of = |rank: usize, k: usize| vec![(rank * 1000 + k) as u32; length(k)];
            let sum = |k: usize| (0..ranks).map(|rank| (rank * 1000 + k) as u32).sum::<u32>();
            for turn in 0..6 {
                let mut buffers: Vec<Vec<u32>> = (0..CALLS).map(|k| of(me, k)).collect();
                let mut group = comm.group();
                for (k, buffer) in buffers.iter_mut().enumerate() {
                    match k % 5 {
                        0 => group.broadcast(buffer, k % ranks),
                        _ => group.all_reduce_in_place(buffer, ReduceOp::Sum),
                    };
                }
                if turn % ranks == me {
                    std::thread::sleep(std::time::Duration::from_millis(30));
                }
                group.run().unwrap();
                for (k, buffer) in buffers.iter().enumerate() {
                    let want = if k % 5 == 0 { (k % ranks * 1000 + k) as u32 } else { sum(k) };
                    assert_eq!(*buffer, vec![want; length(k)], "{ranks} ranks, turn {turn}, call {k}");
                }
            }
        });
    }
}

#[test]
fn a_group_in_another_order_is_an_error_on_every_rank() {
    for (wire, ranks) in Wire::threads().into_iter().flat_map(|wire| [(wire, 2), (wire, 4)]) {
        let ends = at_once(world(wire, ranks), |comm| {
            let run = |lengths: [usize; 2]| {
                let mut buffers = lengths.map(|length| vec![1i32; length]);
                let mut group = comm.group();
                buffers.iter_mut().for_each(|buffer| {
                    group.all_reduce_in_place(buffer, ReduceOp::Sum);
                });
                group.run()
            };
            let lengths = if comm.rank() == 0 { [3, 5] } else { [5, 3] };
            // Who is late learns of it in a call that is the same on all ranks.
            let alike = (0..3).try_for_each(|_| run([3, 5]));
            alike.and_then(|()| run(lengths)).and_then(|()| comm.barrier()).unwrap_err()
        });
        for error in ends {
            assert_eq!(error.kind(), ErrorKind::Mismatch, "{wire:?}: {error}");
            assert!(error.to_string().contains("all_reduce of 5 int32"), "{wire:?}: {error}");
        }
    }
}
