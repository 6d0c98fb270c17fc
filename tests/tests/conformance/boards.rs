//! Small calls over the boards of a host: all lengths around their limits, in an order in which some ranks run ahead.

use paceline_comm::{CallOptions, Collective, Communicator, ReduceOp, Result};
use paceline_tests::world::{Wire, on_each};
use paceline_tests::{Random, seed};
use paceline_transport::Board;

/// Elements that each rank publishes: around the ends of a line, of a slot's lines, of a piece, of a hall.
fn lengths(size: usize) -> Vec<usize> {
    let longest = Board::longest(size) / 4;
    let around = |n: usize| [n - 1, n, n + 1];
    [8, 22, 2682, 4096, 8192].into_iter().chain([longest, longest + 1000]).flat_map(around).chain([0, 1]).collect()
}

/// Element `place` of what rank `rank` brings in a turn.
fn brought(turn: usize, rank: usize, place: usize) -> i32 {
    (turn * 31 + rank * 1009 + place * 7) as i32
}

/// One call, checked. `block` counts the vector's elements, or a block's.
fn call(comm: &Communicator, collective: Collective, block: usize, turn: usize, root: usize) -> Result<()> {
    let (me, size) = (comm.rank(), comm.size());
    let input = |len: usize| -> Vec<i32> { (0..len).map(|place| brought(turn, me, place)).collect() };
    let total = |place: usize| (0..size).map(|rank| brought(turn, rank, place)).sum::<i32>();
    let expect = |name: &str, found: &[i32], want: &dyn Fn(usize) -> i32| {
        for (place, found) in found.iter().enumerate() {
            assert_eq!(*found, want(place), "{name} of {block}, turn {turn}, root {root}: rank {me}, element {place}");
        }
    };
    let mut output = vec![-1; block];
    let mut all = vec![-1; block * size];
    let from = |place: usize| brought(turn, place / block.max(1), place % block.max(1));
    match collective {
        Collective::AllReduce if turn.is_multiple_of(2) => {
            output = input(block);
            comm.all_reduce_in_place(&mut output, ReduceOp::Sum)?;
            expect("all_reduce", &output, &total);
        }
        Collective::AllReduce => {
            comm.all_reduce(&input(block), &mut output, ReduceOp::Sum)?;
            expect("all_reduce", &output, &total);
        }
        Collective::Reduce => {
            comm.reduce(&input(block), &mut output, ReduceOp::Sum, root)?;
            expect("reduce", &output, &|place| if me == root { total(place) } else { -1 });
        }
        Collective::Broadcast => {
            let mut buffer = if me == root { input(block) } else { output };
            comm.broadcast(&mut buffer, root)?;
            expect("broadcast", &buffer, &|place| brought(turn, root, place));
        }
        Collective::AllGather => {
            comm.all_gather(&input(block), &mut all)?;
            expect("all_gather", &all, &from);
        }
        Collective::ReduceScatter => {
            comm.reduce_scatter(&input(block * size), &mut output, ReduceOp::Sum)?;
            expect("reduce_scatter", &output, &|place| total(me * block + place));
        }
        Collective::AllToAll => {
            comm.all_to_all(&input(block * size), &mut all)?;
            let want = |place| brought(turn, place / block.max(1), me * block + place % block.max(1));
            expect("all_to_all", &all, &want);
        }
        Collective::Gather => {
            comm.gather(&input(block), &mut all, root)?;
            expect("gather", &all, &|place| if me == root { from(place) } else { -1 });
        }
        Collective::Scatter => {
            comm.scatter(&input(block * size), &mut output, root)?;
            expect("scatter", &output, &|place| brought(turn, root, me * block + place));
        }
        _ => comm.barrier()?,
    }
    Ok(())
}

#[test]
fn calls_of_all_lengths_in_any_order() {
    for (wire, size) in [(Wire::Inproc, 2), (Wire::Shm, 3), (Wire::Inproc, 5), (Wire::Shm, 2)] {
        on_each(wire, size, |comm| {
            let random = &mut Random::new(seed() ^ size as u64);
            let lengths = lengths(size);
            let collectives = Collective::ALL.into_iter().filter(|collective| !collective.is_message());
            let collectives: Vec<Collective> = collectives.collect();
            for turn in 0..700 {
                let collective = collectives[random.below(collectives.len() as u64) as usize];
                let published = lengths[random.below(lengths.len() as u64) as usize];
                let is_split =
                    matches!(collective, Collective::ReduceScatter | Collective::AllToAll | Collective::Scatter);
                let block = if is_split { published / size } else { published };
                let (root, times) = (random.below(size as u64) as usize, 1 + random.below(4) as usize);
                // A call like one made before takes a shorter way.
                for again in 0..times {
                    call(comm, collective, block, turn * 4 + again, root).unwrap();
                }
            }
        });
    }
}

/// Rank 0 needs the front of what rank 1 scatters, and broadcasts while rank 1 still writes the end.
#[test]
fn what_follows_a_scatter_is_not_mixed_with_its_end() {
    const BLOCK: usize = (200 << 10) / 4;
    on_each(Wire::Shm, 2, |comm| {
        let comm = comm.with(CallOptions { algorithm: Some("direct".into()), ..CallOptions::default() });
        let (dealt, mut part, mut told) = (vec![-7i32; 2 * BLOCK], vec![0; BLOCK], vec![0; 2 * BLOCK]);
        for again in 0..1000 {
            told.fill(if comm.rank() == 0 { again } else { -1 });
            comm.scatter(&dealt, &mut part, 1).unwrap();
            comm.broadcast(&mut told, 0).unwrap();
            assert!(part.iter().all(|found| *found == -7), "{again}");
            let wrong = told.iter().enumerate().find(|(_, found)| **found != again);
            assert_eq!(wrong, None, "{again}");
        }
    });
}

#[test]
fn started_calls_and_blocking_ones_take_turns() {
    on_each(Wire::Inproc, 3, |comm| {
        for turn in 0..50i32 {
            let works: Vec<_> =
                (0..5).map(|k| comm.start_all_reduce(vec![turn + k; 100], ReduceOp::Sum).unwrap()).collect();
            let mut total = [turn];
            comm.all_reduce_in_place(&mut total, ReduceOp::Sum).unwrap();
            assert_eq!(total, [turn * 3]);
            for (k, work) in works.into_iter().enumerate() {
                assert_eq!(work.wait().unwrap(), vec![(turn + k as i32) * 3; 100]);
            }
        }
    });
}

#[test]
fn an_explanation_says_so() {
    on_each(Wire::Shm, 2, |comm| {
        let explain = |bytes| comm.explain(Collective::AllReduce, bytes).unwrap();
        assert!(explain(8).on_boards && explain(8).to_string().contains("over the boards"));
        assert!(!explain(8 << 20).on_boards);
    });
}
