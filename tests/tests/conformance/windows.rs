//! Large calls over registered memory: read where it lies, and by the program where some rank's isn't registered.

use paceline_comm::{Communicator, ReduceOp};
use paceline_tests::world::{Wire, on_each};

fn sizes() -> Vec<(Wire, usize)> {
    let known =
        [(Wire::Inproc, 2), (Wire::Shm, 2), (Wire::Shm, 3), (Wire::Inproc, 5), (Wire::Rdma, 2), (Wire::Queues, 3)];
    let tested = Wire::all();
    known.into_iter().filter(|(wire, _)| tested.contains(wire)).collect()
}

/// Element `place` of what rank `rank` brings in a turn; sums of a few are exact in f32.
fn brought(turn: usize, rank: usize, place: usize) -> f32 {
    ((turn * 31 + rank * 101 + place * 7) % 4093) as f32
}

fn fill(buffer: &mut [f32], turn: usize, rank: usize) {
    buffer.iter_mut().enumerate().for_each(|(place, element)| *element = brought(turn, rank, place));
}

fn total(turn: usize, size: usize, place: usize) -> f32 {
    (0..size).map(|rank| brought(turn, rank, place)).sum()
}

fn check(name: &str, found: &[f32], want: impl Fn(usize) -> f32) {
    for (place, found) in found.iter().enumerate() {
        assert_eq!(*found, want(place), "{name}, element {place} of {}", found.to_bits());
    }
}

/// All collectives that may run so, over an input and an output with room for `block` elements of every rank.
fn calls(comm: &Communicator, block: usize, turn: usize, input: &mut [f32], output: &mut [f32]) {
    let (me, size) = (comm.rank(), comm.size());
    let all = block * size;
    fill(&mut input[..all], turn, me);
    comm.all_reduce(&input[..all], &mut output[..all], ReduceOp::Sum).unwrap();
    check("all_reduce", &output[..all], |place| total(turn, size, place));
    fill(&mut output[..all], turn + 1, me);
    comm.all_reduce_in_place(&mut output[..all], ReduceOp::Avg).unwrap();
    check("all_reduce in place", &output[..all], |place| total(turn + 1, size, place) / size as f32);
    comm.reduce_scatter(&input[..all], &mut output[..block], ReduceOp::Sum).unwrap();
    check("reduce_scatter", &output[..block], |place| total(turn, size, me * block + place));
    fill(&mut output[..all], turn + 2, me);
    comm.reduce_scatter_in_place(&mut output[..all], ReduceOp::Max).unwrap();
    let most = |place| (0..size).map(|rank| brought(turn + 2, rank, me * block + place)).fold(0f32, f32::max);
    check("reduce_scatter in place", &output[me * block..][..block], most);
    comm.all_gather(&input[..block], &mut output[..all]).unwrap();
    check("all_gather", &output[..all], |place| brought(turn, place / block, place % block));
    output[..all].fill(-1.0);
    fill(&mut output[me * block..][..block], turn + 3, me);
    comm.all_gather_in_place(&mut output[..all]).unwrap();
    check("all_gather in place", &output[..all], |place| brought(turn + 3, place / block, place % block));
    comm.all_to_all(&input[..all], &mut output[..all]).unwrap();
    check("all_to_all", &output[..all], |place| brought(turn, place / block, me * block + place % block));
    fill(&mut output[..all], turn + 4, me);
    comm.all_to_all_in_place(&mut output[..all]).unwrap();
    check("all_to_all in place", &output[..all], |place| brought(turn + 4, place / block, me * block + place % block));
    let root = turn % size;
    fill(&mut output[..all], turn + 5, me);
    comm.broadcast(&mut output[..all], root).unwrap();
    check("broadcast", &output[..all], |place| brought(turn + 5, root, place));
    comm.broadcast_from(&input[..all], &mut output[..all], root).unwrap();
    check("broadcast_from", &output[..all], |place| brought(turn, root, place));
}

const MOST: usize = 200_003;

#[test]
fn registered_memory_anywhere_in_its_window() {
    for (wire, size) in sizes() {
        on_each(wire, size, |comm| {
            let mut input = comm.alloc::<f32>(MOST * size + 100).unwrap();
            let mut output = comm.alloc::<f32>(MOST * size + 100).unwrap();
            for (turn, block) in [140_000, 131_072, MOST, 160_001, 1].into_iter().enumerate() {
                // Each rank's begin elsewhere.
                let (skip, other) = (comm.rank() * 7, (turn * 5) % 33);
                calls(comm, block, turn * 10, &mut input[skip..], &mut output[other..]);
            }
        });
    }
}

#[test]
fn one_rank_without_sends_all_by_the_program() {
    for (wire, size) in sizes() {
        on_each(wire, size, |comm| {
            let mut input = comm.alloc::<f32>(MOST * size).unwrap();
            let mut output = comm.alloc::<f32>(MOST * size).unwrap();
            let mut plain = vec![0f32; MOST * size];
            for turn in 0..3 {
                match (turn, comm.rank() + 1 == size) {
                    (0, true) => calls(comm, 140_000, turn, &mut plain, &mut output),
                    (1, true) => calls(comm, 140_000, turn, &mut input, &mut plain),
                    // The same two windows, the other way round.
                    (2, true) => calls(comm, 140_000, turn, &mut output, &mut input),
                    _ => calls(comm, 140_000, turn, &mut input, &mut output),
                }
            }
            // A rank may drop its buffers when it likes.
            if comm.rank() == 0 {
                drop((input, output));
                calls(comm, 140_000, 7, &mut plain, &mut vec![0f32; MOST * size]);
            } else {
                calls(comm, 140_000, 7, &mut input, &mut output);
            }
        });
    }
}

#[test]
fn started_calls_take_turns() {
    on_each(Wire::Shm, 2, |comm| {
        let mut buffer = comm.alloc::<f32>(300_000).unwrap();
        for turn in 0..5 {
            let works: Vec<_> =
                (0..3).map(|k| comm.start_all_reduce(vec![k as f32; 100_000], ReduceOp::Sum).unwrap()).collect();
            fill(&mut buffer, turn, comm.rank());
            comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum).unwrap();
            check("all_reduce", &buffer, |place| total(turn, 2, place));
            for (k, work) in works.into_iter().enumerate() {
                check("started", &work.wait().unwrap(), |_| 2.0 * k as f32);
            }
        }
    });
}
