//! Calls of no elements: a call like any other where all ranks make it.

use paceline_comm::algorithm::ROWS;
use paceline_comm::{Buffers, CallOptions, Collective, DataType, ReduceOp, Request};
use paceline_tests::world::{PATIENCE, Wire, on_each};

#[test]
fn nothing_on_all_ranks_is_fine() {
    for wire in Wire::threads() {
        for ranks in [1, 2, 3] {
            on_each(wire, ranks, |comm| {
                for row in ROWS.iter().filter(|row| (row.fits)(ranks as u32)) {
                    let comm = comm.with(CallOptions { timeout: Some(PATIENCE), algorithm: Some(row.name.into()) });
                    for in_place in [false, true] {
                        let buffers = match in_place {
                            true => Buffers::InPlace(&mut []),
                            false => Buffers::Separate { input: &[], output: &mut [] },
                        };
                        let request = Request::new(row.collective, DataType::F32, 0, buffers).root(ranks - 1);
                        comm.run(request.op(ReduceOp::Avg)).unwrap_or_else(|error| panic!("{wire:?}: {error}"));
                    }
                }
                if ranks == 2 {
                    let peer = 1 - comm.rank();
                    comm.send_recv::<f64>(&[], peer, &mut [], peer).unwrap();
                }
                let mut total = [comm.rank() as u64];
                comm.all_reduce_in_place(&mut total, ReduceOp::Sum).unwrap();
                assert_eq!(total, [(0..ranks as u64).sum::<u64>()]);
            });
        }
    }
}

/// A call of nothing is still a call of its number: it can't be left out by some.
#[test]
fn nothing_counts_as_a_call() {
    on_each(Wire::Inproc, 2, |comm| {
        comm.all_reduce_in_place::<f32>(&mut [], ReduceOp::Sum).unwrap();
        let begun = comm.start_all_reduce(Vec::<f32>::new(), ReduceOp::Sum).unwrap();
        assert_eq!(begun.wait().unwrap(), [0f32; 0]);
        let call = comm.run(Request::new(Collective::Barrier, DataType::U8, 0, Buffers::InPlace(&mut [])));
        call.unwrap();
    });
}
