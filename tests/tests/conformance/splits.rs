//! Groups of ranks as communicators of their own.

use paceline_comm::{Communicator, ReduceOp};
use paceline_tests::world::{Wire, at_once, on_each, world};

/// The numbers that the ranks of a communicator bring, in its order.
fn roll_call(comm: &Communicator, mine: u32) -> Vec<u32> {
    let mut all = vec![0; comm.size()];
    comm.all_gather(&[mine], &mut all).unwrap();
    all
}

#[test]
fn ranks_of_one_color_meet_in_the_order_of_their_keys() {
    for wire in Wire::threads() {
        on_each(wire, 5, |comm| {
            let me = comm.rank();
            let odd = comm.split(Some(me as u64 % 2), 0).unwrap().unwrap();
            assert_eq!(roll_call(&odd, me as u32), if me % 2 == 0 { vec![0, 2, 4] } else { vec![1, 3] });
            let turned = comm.split(Some(u64::MAX), -(me as i64)).unwrap().unwrap();
            assert_eq!((turned.rank(), turned.size()), (4 - me, 5));
            assert_eq!(roll_call(&turned, me as u32), [4, 3, 2, 1, 0]);
            let alone = comm.split(Some(me as u64), 7).unwrap().unwrap();
            assert_eq!((alone.rank(), alone.size()), (0, 1));
            assert_eq!(roll_call(&alone, me as u32), [me as u32]);
            for peer in (0..5).filter(|peer| *peer != turned.rank()) {
                assert_eq!(turned.link_kind(peer), Some(wire.kind()));
            }
        });
    }
}

#[test]
fn ranks_without_a_color_get_none() {
    for wire in Wire::threads() {
        on_each(wire, 4, |comm| {
            let me = comm.rank();
            let some = comm.split((me != 1).then_some(0), 0).unwrap();
            assert_eq!(some.is_some(), me != 1);
            if let Some(some) = &some {
                assert_eq!(roll_call(some, me as u32), [0, 2, 3]);
            }
            assert!(comm.split(None, 0).unwrap().is_none(), "nobody has a color");
            comm.barrier().unwrap();
        });
    }
}

#[test]
fn a_part_can_be_split_again_and_outlives_its_whole() {
    for wire in Wire::threads() {
        at_once(world(wire, 6), |comm| {
            let me = comm.rank();
            let half = comm.split(Some(me as u64 / 3), -(me as i64)).unwrap().unwrap();
            drop(comm);
            let pair = half.split((half.rank() < 2).then_some(9), half.rank() as i64).unwrap();
            let third = half.split(Some(half.rank() as u64), 0).unwrap().unwrap();
            drop(half);
            assert_eq!(roll_call(&third, me as u32), [me as u32]);
            assert_eq!(pair.is_some(), me % 3 != 0);
            if let Some(pair) = pair {
                let first = me as u32 / 3 * 3;
                assert_eq!(roll_call(&pair, me as u32), [first + 2, first + 1], "{wire:?}");
                let mut total = vec![1i64; 100_000];
                pair.all_reduce_in_place(&mut total, ReduceOp::Sum).unwrap();
                assert!(total.iter().all(|element| *element == 2));
            }
        });
    }
}

#[test]
fn the_whole_and_its_parts_work_side_by_side() {
    for wire in Wire::threads() {
        on_each(wire, 4, |comm| {
            let me = comm.rank();
            let row = comm.split(Some(me as u64 / 2), 0).unwrap().unwrap();
            let column = comm.split(Some(me as u64 % 2), 0).unwrap().unwrap();
            // Each communicator in a thread of its own, on every rank.
            std::thread::scope(|scope| {
                for (part, ranks, len) in [(comm, 4, 3), (&row, 2, 5000), (&column, 2, 70)] {
                    scope.spawn(move || {
                        for turn in 0..50 {
                            let mut total = vec![turn; len];
                            part.all_reduce_in_place(&mut total, ReduceOp::Sum).unwrap();
                            assert_eq!(total, vec![turn * ranks; len], "{wire:?}");
                        }
                    });
                }
            });
        });
    }
}

#[test]
fn splits_may_follow_one_another_closely() {
    for wire in [Wire::Inproc, Wire::Shm] {
        on_each(wire, 3, |comm| {
            for turn in 0..30 {
                let part = comm.split(Some(0), if turn % 2 == 0 { 0 } else { -(comm.rank() as i64) }).unwrap().unwrap();
                assert_eq!(part.size(), 3);
                part.barrier().unwrap();
            }
        });
    }
}
