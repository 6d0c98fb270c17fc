//! Calls that own their buffers and go on while the caller computes.

use std::time::{Duration, Instant};

use paceline_comm::{CallOptions, ErrorKind, ReduceOp};
use paceline_tests::world::{Wire, at_once, on_each, world};

#[test]
fn several_calls_go_on_at_once_and_are_waited_for_in_any_order() {
    for wire in Wire::threads() {
        for ranks in [1, 2, 4] {
            on_each(wire, ranks, |comm| {
                let (me, n) = (comm.rank(), comm.size());
                let begin = |len: usize| comm.start_all_reduce(vec![me as i32; len], ReduceOp::Sum).unwrap();
                let many: Vec<_> = (0..20).map(|k| begin(1 + k * 3000)).collect();
                let mean = comm.start_reduce(vec![me as f32; 5], ReduceOp::Avg, n - 1).unwrap();
                let told = comm.start_broadcast(vec![me as u8; 1000], n / 2).unwrap();
                let gathered = comm.start_all_gather(vec![me as u64], vec![0; n]).unwrap();
                let shared = comm.start_reduce_scatter(vec![1i64; 3 * n], vec![0; 3], ReduceOp::Sum).unwrap();
                let turned = comm.start_all_to_all(vec![me as u32; 2 * n], vec![0; 2 * n]).unwrap();
                let at_root = |root: usize, len: usize| if me == root { len } else { 0 };
                let heap = comm.start_gather(vec![me as u32; 2], vec![0; at_root(0, 2 * n)], 0).unwrap();
                let dealt = comm.start_scatter(vec![5u8; at_root(0, n)], vec![0; 1], 0).unwrap();
                let all_here = comm.start_barrier().unwrap();
                // A blocking call in the midst of them.
                let mut total = [1u64; 3];
                comm.all_reduce_in_place(&mut total, ReduceOp::Sum).unwrap();
                assert_eq!(total, [n as u64; 3]);
                all_here.wait().unwrap();
                assert_eq!(dealt.wait().unwrap(), [5]);
                let twice = |len: usize| (0..len).flat_map(|rank| [rank as u32; 2]).collect::<Vec<_>>();
                assert_eq!(heap.wait().unwrap(), twice(at_root(0, n)));
                assert_eq!(turned.wait().unwrap(), (0..n).flat_map(|rank| [rank as u32; 2]).collect::<Vec<_>>());
                assert_eq!(shared.wait().unwrap(), [n as i64; 3]);
                assert_eq!(gathered.wait().unwrap(), (0..n as u64).collect::<Vec<_>>());
                assert_eq!(told.wait().unwrap(), [(n / 2) as u8; 1000]);
                let mean = mean.wait().unwrap();
                assert!(me != n - 1 || mean == [(n - 1) as f32 / 2.0; 5]);
                for (k, work) in many.into_iter().enumerate().rev() {
                    assert_eq!(
                        work.wait().unwrap(),
                        vec![(n * (n - 1) / 2) as i32; 1 + k * 3000],
                        "{wire:?}, call {k}"
                    );
                }
            });
        }
    }
}

#[test]
fn started_messages_give_their_buffers_back() {
    for wire in Wire::threads() {
        on_each(wire, 2, |comm| {
            let (me, peer) = (comm.rank(), 1 - comm.rank());
            let lens = [1, 0, 100_000, 7];
            let arriving: Vec<_> = lens.map(|len| comm.start_recv(vec![0u32; len], peer).unwrap()).into();
            let leaving: Vec<_> = lens.map(|len| comm.start_send(vec![me as u32 + 1; len], peer).unwrap()).into();
            for ((work, len), arrived) in leaving.into_iter().zip(lens).zip(arriving) {
                assert_eq!(work.wait().unwrap(), vec![me as u32 + 1; len]);
                assert_eq!(arrived.wait().unwrap(), vec![peer as u32 + 1; len], "{wire:?}");
            }
        });
    }
}

#[test]
fn a_wait_may_be_cut_short_and_the_call_goes_on() {
    for wire in Wire::threads() {
        on_each(wire, 2, |comm| {
            if comm.rank() == 0 {
                let work = comm.start_all_reduce(vec![1u8; 10], ReduceOp::Sum).unwrap();
                let begin = Instant::now();
                // Rank 1 waits for a message that is sent after this.
                assert!(!work.test());
                assert!(!work.wait_timeout(Duration::ZERO));
                assert!(!work.wait_timeout(Duration::from_millis(20)));
                assert!(begin.elapsed() >= Duration::from_millis(20));
                comm.send(&[1u8], 1).unwrap();
                assert!(work.wait_timeout(Duration::from_secs(20)), "{wire:?}");
                assert!(work.test());
                assert_eq!(work.wait().unwrap(), [2; 10]);
            } else {
                comm.recv(&mut [0u8], 0).unwrap();
                comm.all_reduce_in_place(&mut [1u8; 10], ReduceOp::Sum).unwrap();
            }
        });
    }
}

#[test]
fn a_dropped_work_goes_on_for_the_others() {
    for wire in Wire::threads() {
        on_each(wire, 3, |comm| {
            let work = comm.start_all_reduce(vec![1u32; 50_000], ReduceOp::Sum).unwrap();
            if comm.rank() == 1 {
                drop(work);
            } else {
                assert_eq!(work.wait().unwrap(), vec![3; 50_000], "{wire:?}");
            }
            comm.barrier().unwrap();
        });
    }
}

/// Dropping is local: the work ends with an error here, and at those who needed this rank.
#[test]
fn a_communicator_dropped_under_way_ends_its_calls() {
    for wire in Wire::threads() {
        let ends = at_once(world(wire, 3), |comm| {
            if comm.rank() == 1 {
                let work = comm.start_all_reduce(vec![1u32; 50_000], ReduceOp::Sum).unwrap();
                comm.recv(&mut [0u8], 0).unwrap();
                let begin = Instant::now();
                drop(comm);
                assert!(begin.elapsed() < Duration::from_secs(1), "{wire:?}: dropping took {:?}", begin.elapsed());
                return work.wait().unwrap_err();
            }
            if comm.rank() == 0 {
                comm.send(&[1u8], 1).unwrap();
            }
            // Rank 2 doesn't join in, so that the others' call is under way.
            comm.recv(&mut [0u8], 1).unwrap_err()
        });
        assert_eq!(ends[1].kind(), ErrorKind::Aborted, "{wire:?}: {}", ends[1]);
        assert!(ends[1].cause().contains("dropped"), "{wire:?}: {}", ends[1]);
        for rank in [0, 2] {
            assert_eq!(
                (ends[rank].kind(), ends[rank].peers()),
                (ErrorKind::PeerLeft, &[1][..]),
                "{wire:?}: {}",
                ends[rank]
            );
        }
    }
}

#[test]
fn a_work_ends_with_its_calls_timeout() {
    for wire in Wire::threads() {
        let ends = at_once(world(wire, 2), |comm| {
            if comm.rank() == 1 {
                return comm.recv(&mut [0u8], 0).unwrap_err();
            }
            let hasty = CallOptions { timeout: Some(Duration::from_secs(1)), algorithm: None };
            let work = comm.with(hasty).start_all_reduce(vec![1u8; 3], ReduceOp::Sum).unwrap();
            let begin = Instant::now();
            let error = work.wait().unwrap_err();
            assert!(begin.elapsed() < Duration::from_secs(5), "{wire:?}: {:?}", begin.elapsed());
            error
        });
        for error in &ends {
            assert_eq!((error.kind(), error.peers()), (ErrorKind::Timeout, &[1][..]), "{wire:?}: {error}");
        }
        assert!(ends[0].to_string().contains("all_reduce #"), "{wire:?}: {}", ends[0]);
    }
}

#[test]
fn hundreds_of_calls_may_be_under_way() {
    for wire in Wire::threads() {
        on_each(wire, 3, |comm| {
            let begin = |k: usize| comm.start_all_reduce(vec![k as u32; 1 + k % 50 * 40], ReduceOp::Sum).unwrap();
            let works: Vec<_> = (0..400).map(begin).collect();
            for (k, work) in works.into_iter().enumerate() {
                assert_eq!(work.wait().unwrap(), vec![3 * k as u32; 1 + k % 50 * 40], "{wire:?}, call {k}");
            }
        });
    }
}
