//! Communicators used from several threads.

use paceline_comm::ReduceOp;
use paceline_tests::world::{Wire, at_once, world};

#[test]
fn communicators_do_not_wait_for_one_another() {
    for wire in Wire::threads() {
        let (first, second) = (world(wire, 3), world(wire, 3));
        at_once(first.into_iter().zip(second).collect(), |(first, second)| {
            std::thread::scope(|scope| {
                for (comm, len) in [(&first, 10), (&second, 40_000)] {
                    scope.spawn(move || {
                        for turn in 0..40 {
                            let mut total = vec![turn; len];
                            comm.all_reduce_in_place(&mut total, ReduceOp::Sum).unwrap();
                            assert_eq!(total, vec![3 * turn; len], "{wire:?}");
                        }
                    });
                }
            });
        });
    }
}

/// Four threads talk to four peers over one communicator, each pair in an order of its own.
#[test]
fn threads_share_a_communicator_for_messages() {
    for wire in Wire::threads() {
        at_once(world(wire, 4), |comm| {
            let (comm, me) = (&comm, comm.rank());
            std::thread::scope(|scope| {
                for peer in (0..4).filter(|peer| *peer != me) {
                    scope.spawn(move || {
                        for turn in 0..40u32 {
                            let len = [3, 9000][turn as usize % 2];
                            let mut arrived = vec![0; len];
                            comm.send_recv(&vec![turn * 4 + me as u32; len], peer, &mut arrived, peer).unwrap();
                            assert_eq!(arrived, vec![turn * 4 + peer as u32; len], "{wire:?}, turn {turn}");
                        }
                    });
                }
            });
        });
    }
}

/// Handles of one communicator may be dropped in any thread.
#[test]
fn handles_are_shared_and_sent() {
    at_once(world(Wire::Shm, 2), |comm| {
        let other = comm.with(paceline_comm::CallOptions::default());
        let thread = std::thread::spawn(move || other.barrier());
        thread.join().unwrap().unwrap();
        let comm = std::sync::Arc::new(comm);
        let theirs = comm.clone();
        let work = std::thread::spawn(move || theirs.start_barrier().unwrap()).join().unwrap();
        drop(comm.start_barrier().unwrap());
        work.wait().unwrap();
        comm.barrier().unwrap();
    });
}
