//! Uneven blocks where they may go wrong: in place with other lengths out than in, and with nothing at all.

use paceline_comm::algorithm::rows_for;
use paceline_comm::reduce::{as_bytes, as_bytes_mut};
use paceline_comm::{Buffers, CallOptions, Collective, Counts, DataType, Request};
use paceline_tests::world::{Wire, on_each};

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
    for wire in Wire::THREADS {
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
