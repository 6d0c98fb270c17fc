//! Abort: from any thread, bounded, and everyone is told why.

use std::time::{Duration, Instant};

use paceline_comm::{Communicator, ErrorKind, ReduceOp};
use paceline_tests::world::{Wire, at_once, world};

const REASON: &str = "the loss is not a number";

fn check(error: &paceline_comm::Error, by: usize, rank: usize, wire: Wire) {
    assert_eq!(error.kind(), ErrorKind::Aborted, "{wire:?}, rank {rank}: {error}");
    assert!(error.to_string().contains(REASON), "{wire:?}, rank {rank}: {error}");
    let reporter = (rank != by).then_some(by);
    assert_eq!(error.reporter(), reporter, "{wire:?}, rank {rank}: {error}");
}

/// Rank 2 stays away from the call, so that nobody can end it but the abort.
fn abort_while(wire: Wire, call: impl Fn(&Communicator) -> paceline_comm::Error + Sync) {
    let ends = at_once(world(wire, 3), |comm| {
        let comm = &comm;
        let begin = Instant::now();
        let error = std::thread::scope(|scope| match comm.rank() {
            0 => {
                let caller = scope.spawn(|| call(comm));
                // Rank 1 sends just before it joins in; by then rank 0's call may have begun, or not.
                comm.recv(&mut [0u8], 1).unwrap();
                comm.abort(REASON);
                caller.join().unwrap()
            }
            1 => {
                comm.send(&[0u8], 0).unwrap();
                call(comm)
            }
            _ => comm.recv(&mut [0u8; 7], 1).unwrap_err(),
        });
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(5), "{wire:?}, rank {}: took {took:?}", comm.rank());
        let later = comm.barrier().unwrap_err();
        assert!(later.kind() == ErrorKind::Aborted && later.to_string().contains(REASON), "{wire:?}: {later}");
        error
    });
    ends.iter().enumerate().for_each(|(rank, error)| check(error, 0, rank, wire));
}

#[test]
fn a_blocking_call_is_aborted_from_another_thread() {
    for wire in Wire::threads() {
        abort_while(wire, |comm| comm.all_reduce_in_place(&mut [1u8; 3], ReduceOp::Sum).unwrap_err());
        abort_while(wire, |comm| comm.all_reduce_in_place(&mut vec![1u64; 1 << 18], ReduceOp::Sum).unwrap_err());
    }
}

#[test]
fn a_started_call_is_aborted() {
    for wire in Wire::threads() {
        abort_while(wire, |comm| match comm.start_all_reduce(vec![1u8; 3], ReduceOp::Sum) {
            Ok(work) => work.wait().unwrap_err(),
            Err(error) => error,
        });
    }
}

#[test]
fn an_idle_communicator_is_aborted_and_says_so_at_the_next_call() {
    for wire in Wire::threads() {
        let ends = at_once(world(wire, 2), |comm| {
            if comm.rank() == 0 {
                comm.abort(REASON);
                comm.abort("a second reason, that comes too late");
            }
            comm.barrier().unwrap_err()
        });
        ends.iter().enumerate().for_each(|(rank, error)| check(error, 0, rank, wire));
    }
}

#[test]
fn other_communicators_are_not_aborted() {
    at_once(world(Wire::Shm, 2), |comm| {
        let part = comm.split(Some(0), 0).unwrap().unwrap();
        if comm.rank() == 0 {
            part.abort(REASON);
        }
        part.barrier().unwrap_err();
        comm.barrier().unwrap();
        let again = comm.split(Some(0), 0).unwrap().unwrap();
        again.barrier().unwrap();
    });
}

/// In the thread that drives its call itself, and in one whose call another thread drives.
#[test]
fn a_caller_who_waits_gives_up_when_told_so() {
    for wire in Wire::threads() {
        let ends = at_once(world(wire, 2), |comm| {
            if comm.rank() == 1 {
                return vec![comm.recv(&mut [0u8; 7], 0).unwrap_err()];
            }
            let callers = std::sync::Mutex::new(std::collections::HashSet::new());
            let asked = std::sync::Arc::new(callers);
            let told = asked.clone();
            comm.ask_while_waiting(move || {
                let mut callers = asked.lock().unwrap();
                callers.insert(std::thread::current().id());
                (callers.len() == 2).then(|| REASON.to_owned())
            });
            comm.ask_while_waiting(|| panic!("only the first counts"));
            let begin = Instant::now();
            let errors = std::thread::scope(|scope| {
                let callers = [3usize, 5].map(|len| {
                    let comm = &comm;
                    scope.spawn(move || comm.recv(&mut vec![0u8; len], 1).unwrap_err())
                });
                callers.map(|caller| caller.join().unwrap())
            });
            let took = begin.elapsed();
            assert!(took < Duration::from_secs(5), "{wire:?}: took {took:?}");
            assert_eq!(told.lock().unwrap().len(), 2, "{wire:?}: both threads were asked");
            errors.to_vec()
        });
        ends.iter().enumerate().for_each(|(rank, errors)| {
            errors.iter().for_each(|error| check(error, 0, rank, wire));
        });
    }
}
