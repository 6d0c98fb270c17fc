//! Uneven blocks where they may go wrong: in place with other lengths out than in, and with nothing at all.

use paceline_comm::algorithm::rows_for;
use paceline_comm::reduce::{as_bytes, as_bytes_mut};
use paceline_comm::{Buffers, CallOptions, Collective, Communicator, Counts, DataType, ReduceOp, Request};
use paceline_tests::world::{Wire, on_each};
use paceline_transport::Board;

/// In place, what comes may lie where something still has to leave.
#[test]
fn all_to_all_in_place_moves_blocks_of_other_lengths() {
    const RANKS: usize = 4;
    let between = |from: usize, to: usize| 1 + (from * 3 + to) % 5;
    for row in rows_for(Collective::AllToAll).filter(|row| row.uneven && !row.moves_runs) {
        on_each(Wire::Inproc, RANKS, |comm| {
            let me = comm.rank();
            let comm = comm.with(CallOptions { timeout: Some(comm.timeout()), algorithm: Some(row.name.into()) });
            let send: Vec<usize> = (0..RANKS).map(|to| between(me, to)).collect();
            let recv: Vec<usize> = (0..RANKS).map(|from| between(from, me)).collect();
            let named =
                |from: usize, to: usize| (0..between(from, to)).map(move |at| (from * 10_000 + to * 100 + at) as i32);
            let mut buffer: Vec<i32> = (0..RANKS).flat_map(|to| named(me, to)).collect();
            let want: Vec<i32> = (0..RANKS).flat_map(|from| named(from, me)).collect();
            buffer.resize(buffer.len().max(want.len()), -1);
            let buffers = Buffers::InPlace(as_bytes_mut(&mut buffer));
            let counts = Counts { send_counts: &send, recv_counts: &recv, ..Counts::default() };
            comm.run(Request::new(Collective::AllToAll, DataType::I32, 0, buffers).counts(counts)).unwrap();
            assert_eq!(buffer[..want.len()], want, "{}, rank {me}", row.name);
        });
    }
}

#[test]
fn blocks_that_are_all_empty_are_a_call_all_the_same() {
    let zeros = [0; 3];
    for wire in Wire::threads() {
        on_each(wire, 3, |comm| {
            for _ in 0..3 {
                comm.all_gather_v::<f32>(&[], &mut [], &zeros).unwrap();
                comm.reduce_scatter_v::<f32>(&[], &mut [], &zeros, paceline_comm::ReduceOp::Sum).unwrap();
                comm.gather_v::<f32>(&[], &mut [], &zeros, 1).unwrap();
                comm.scatter_v::<f32>(&[], &zeros, &mut [], 2).unwrap();
                comm.all_to_all_v::<f32>(&[], &zeros, &mut [], &zeros).unwrap();
            }
        });
    }
}

/// Where blocks lie is each rank's own affair.
#[test]
fn offsets_may_differ_from_rank_to_rank() {
    on_each(Wire::Shm, 3, |comm| {
        let me = comm.rank();
        let (counts, mine) = ([2, 0, 3], vec![me as u8; [2, 0, 3][me]]);
        let offsets = [[0, 2, 2], [7, 0, 1], [3, 99, 0]][me];
        let mut output = [9u8; 12];
        let buffers = Buffers::Separate { input: as_bytes(&mine), output: as_bytes_mut(&mut output) };
        let given = Counts { recv_counts: &counts, recv_offsets: &offsets, ..Counts::default() };
        let ended = comm.run(Request::new(Collective::AllGather, DataType::U8, 0, buffers).counts(given));
        if me == 2 {
            // An empty block may lie anywhere that can be addressed, even behind the buffer's end.
            ended.unwrap();
            return assert_eq!(output, [2, 2, 2, 0, 0, 9, 9, 9, 9, 9, 9, 9]);
        }
        ended.unwrap();
        let want = [[0, 0, 2, 2, 2, 9, 9, 9, 9, 9, 9, 9], [9, 2, 2, 2, 9, 9, 9, 0, 0, 9, 9, 9]][me];
        assert_eq!(output, want);
    });
}

/// Element `at` of what rank `rank` brings.
fn brought(rank: usize, at: usize) -> i64 {
    (rank * 1009 + at * 7) as i64
}

fn vector(rank: usize, range: std::ops::Range<usize>) -> Vec<i64> {
    range.map(|at| brought(rank, at)).collect()
}

/// Every collective of uneven blocks, where `between(a, b)` elements go from `a` to `b`; those of one list of counts have
/// rank 0's.
fn all_uneven(comm: &Communicator, between: impl Fn(usize, usize) -> usize) {
    let (me, n) = (comm.rank(), comm.size());
    let counts: Vec<usize> = (0..n).map(|to| between(0, to)).collect();
    let (total, start) = (counts.iter().sum(), counts[..me].iter().sum::<usize>());
    let all: Vec<i64> = (0..n).flat_map(|rank| vector(rank, 0..counts[rank])).collect();
    let (mine, block, root) = (vector(me, 0..counts[me]), start..start + counts[me], n - 1);
    let mut output = vec![-1; total];
    comm.all_gather_v(&mine, &mut output, &counts).unwrap();
    assert_eq!(output, all);
    let mut output = vec![-1; counts[me]];
    comm.reduce_scatter_v(&vector(me, 0..total), &mut output, &counts, ReduceOp::Sum).unwrap();
    assert_eq!(output, block.clone().map(|at| (0..n).map(|rank| brought(rank, at)).sum()).collect::<Vec<i64>>());
    let mut output = vec![-1; if me == root { total } else { 0 }];
    comm.gather_v(&mine, &mut output, &counts, root).unwrap();
    assert_eq!(output, if me == root { all } else { Vec::new() });
    let mut output = vec![-1; counts[me]];
    comm.scatter_v(&vector(me, 0..if me == root { total } else { 0 }), &counts, &mut output, root).unwrap();
    assert_eq!(output, vector(root, block));
    let (send, recv): (Vec<_>, Vec<_>) = (0..n).map(|peer| (between(me, peer), between(peer, me))).unzip();
    let mut output = vec![-1; recv.iter().sum()];
    comm.all_to_all_v(&vector(me, 0..send.iter().sum()), &send, &mut output, &recv).unwrap();
    let from = |rank: usize| {
        let start: usize = (0..me).map(|to| between(rank, to)).sum();
        vector(rank, start..start + between(rank, me))
    };
    assert_eq!(output, (0..n).flat_map(from).collect::<Vec<_>>());
}

/// Lengths around the limits of the boards, each several times: calls like one before go another way.
#[test]
fn uneven_blocks_of_all_lengths() {
    for wire in [Wire::Inproc, Wire::Shm] {
        for n in [1, 2, 4] {
            on_each(wire, n, |comm| {
                let longest = Board::longest(n) / 8;
                for unit in [0, 1, 3, 300, longest / 16, longest / 2, longest, longest + 1] {
                    (0..3).for_each(|_| all_uneven(comm, |from, to| (from + to) % n * unit));
                }
            });
        }
    }
}

/// What one rank sends is too long for its board, which the others can't know beforehand.
#[test]
fn one_rank_sends_more_than_the_others() {
    for wire in Wire::threads() {
        on_each(wire, 3, |comm| {
            let longest = Board::longest(3) / 8;
            for giver in [0, 1, 2, 1] {
                let of = |from: usize, to: usize| if from == giver { longest / 2 + to } else { from + to };
                all_uneven(comm, of);
                all_uneven(comm, |from, to| of(to, from));
                all_uneven(comm, |from, to| from * to);
            }
        });
    }
}

/// Blocks that a rank sends from other places than one behind the other.
#[test]
fn blocks_may_leave_from_anywhere() {
    for wire in [Wire::Inproc, Wire::Shm] {
        on_each(wire, 3, |comm| {
            let (me, counts) = (comm.rank(), [2, 0, 3]);
            let offsets = [[4, 0, 0], [0, 9, 5], [7, 0, 1]][me];
            let place = |to: usize| offsets[to]..offsets[to] + counts[to];
            let mut input = [99u8; 12];
            (0..3).for_each(|to| input[place(to)].fill((10 * me + to) as u8));
            for _ in 0..3 {
                let mut output = vec![0u8; counts[me]];
                let buffers = Buffers::Separate { input: &input, output: &mut output };
                let given = Counts { send_counts: &counts, send_offsets: &offsets, ..Counts::default() };
                comm.run(Request::new(Collective::ReduceScatter, DataType::U8, 0, buffers).counts(given)).unwrap();
                assert_eq!(output, vec![(30 + 3 * me) as u8; counts[me]]);
                let mut output = vec![0u8; 3 * counts[me]];
                let recv = [counts[me]; 3];
                let buffers = Buffers::Separate { input: &input, output: &mut output };
                let given =
                    Counts { send_counts: &counts, send_offsets: &offsets, recv_counts: &recv, ..Counts::default() };
                comm.run(Request::new(Collective::AllToAll, DataType::U8, 0, buffers).counts(given)).unwrap();
                assert_eq!(
                    output,
                    (0..3).flat_map(|from| vec![(10 * from + me) as u8; counts[me]]).collect::<Vec<_>>()
                );
            }
        });
    }
}
