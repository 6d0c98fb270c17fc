//! Calls that can't be meant: refused at once, with a text that helps, and the communicator is as good as before.

use paceline_comm::reduce::as_bytes_mut;
use paceline_comm::{Buffers, Collective, Communicator, Counts, DataType, Error, ErrorKind, ReduceOp, Request, Result};
use paceline_tests::world::{Wire, on_each};

use Collective::{
    AllGather, AllReduce, AllToAll, Broadcast, Gather, Recv, Reduce, ReduceScatter, Scatter, Send, SendRecv,
};

type Call = fn(&Communicator) -> Result<()>;

/// Calls of rank 0 of 3 ranks, and what must be said of them.
const REFUSED: &[(Call, &str)] = &[
    (
        |c| c.all_reduce(&[1f32; 4], &mut [0f32; 3], ReduceOp::Sum),
        "output of all_reduce has 12 bytes but 16 are needed",
    ),
    (|c| c.reduce(&[1f32; 4], &mut [], ReduceOp::Sum, 0), "output of reduce has 0 bytes but 16 are needed"),
    (|c| c.broadcast_from(&[1u8; 3], &mut [0u8; 4], 0), "input of broadcast has 3 bytes but 4 are needed"),
    (|c| c.all_gather(&[1i64; 2], &mut [0i64; 5]), "output of all_gather has 40 bytes but 48 are needed"),
    (|c| c.reduce_scatter(&[1i64; 5], &mut [0i64; 2], ReduceOp::Sum), "input of reduce_scatter has 40 bytes but 48"),
    (|c| c.all_to_all(&[1u8; 6], &mut [0u8; 5]), "output of all_to_all has 5 bytes but 6 are needed"),
    (|c| c.gather(&[1u8; 2], &mut [0u8; 5], 0), "output of gather has 5 bytes but 6 are needed"),
    (|c| c.scatter(&[1u8; 5], &mut [0u8; 2], 0), "input of scatter has 5 bytes but 6 are needed"),
    (|c| c.all_gather_in_place(&mut [0u8; 4]), "4 elements are not 3 blocks of one length"),
    (|c| c.reduce_scatter_in_place(&mut [0u8; 4], ReduceOp::Max), "4 elements are not 3 blocks of one length"),
    (|c| c.all_to_all_in_place(&mut [0u8; 4]), "4 elements are not 3 blocks of one length"),
    (|c| c.broadcast(&mut [0u8; 4], 3), "root 3 of broadcast is not below the communicator's size, 3"),
    (
        |c| c.reduce_in_place(&mut [0u8; 4], ReduceOp::Sum, usize::MAX),
        "root 18446744073709551615 of reduce is not below",
    ),
    (|c| c.gather(&[1u8; 2], &mut [0u8; 6], 7), "root 7 of gather is not below"),
    (|c| c.scatter(&[1u8; 6], &mut [0u8; 2], 7), "root 7 of scatter is not below"),
    (|c| c.send(&[1u8], 3), "target 3 of send is not below"),
    (|c| c.recv(&mut [1u8], 4), "source 4 of recv is not below"),
    (|c| c.send_recv(&[1u8], 1, &mut [0u8], 5), "source 5 of send_recv is not below"),
    (|c| c.send(&[1u8], 0), "send of rank 0 with itself has no partner"),
    (|c| c.recv(&mut [1u8], 0), "recv of rank 0 with itself has no partner"),
    (|c| c.send_recv(&[1u8], 0, &mut [0u8], 1), "send_recv of rank 0 with itself has no partner"),
    (|c| c.send_recv(&[1u8; 2], 0, &mut [0u8], 0), "rank 0 sends itself 2 elements but expects 1"),
    (|c| c.all_gather_v(&[1u8; 2], &mut [0u8; 9], &[2, 3]), "there are 2 recv counts for 3 ranks"),
    (|c| c.all_gather_v(&[1u8; 2], &mut [0u8; 9], &[3, 3, 3]), "input of all_gather has 2 bytes but 3 are needed"),
    (|c| c.all_gather_v(&[1u8; 3], &mut [0u8; 8], &[3, 3, 3]), "output of all_gather has 8 bytes but 9 are needed"),
    (|c| c.reduce_scatter_v(&[1u8; 9], &mut [], &[], ReduceOp::Sum), "there are 0 send counts for 3 ranks"),
    (|c| c.reduce_scatter_v(&[1u8; 8], &mut [0; 3], &[3, 3, 3], ReduceOp::Sum), "input of reduce_scatter has 8 bytes"),
    (|c| c.scatter_v(&[1u8; 9], &[1, 2, 3, 3], &mut [0u8; 1], 0), "there are 4 send counts for 3 ranks"),
    (|c| c.gather_v(&[1u8; 9], &mut [0u8; 9], &[usize::MAX; 3], 0), "more than memory can hold"),
    (|c| c.gather_v(&[1u64; 9], &mut [0u64; 9], &[1, usize::MAX / 4, 3], 0), "more than memory can hold"),
    (|c| c.all_to_all_v(&[1u8; 6], &[2; 3], &mut [0u8; 6], &[2; 2]), "there are 2 recv counts for 3 ranks"),
    (|c| c.all_to_all_v(&[1u8; 6], &[2; 3], &mut [0u8; 7], &[3, 2, 2]), "rank 0 sends itself 2 elements but expects 3"),
    (|c| c.start_all_to_all(vec![1u8; 4], vec![0u8; 4]).map(drop), "4 elements are not 3 blocks of one length"),
    (
        |c| c.start_all_gather(vec![1u8; 4], vec![0u8; 4]).map(drop),
        "output of all_gather has 4 bytes but 12 are needed",
    ),
    (|c| c.start_broadcast(vec![1u8; 4], 9).map(drop), "root 9 of broadcast is not below"),
    (|c| c.run(new(AllReduce, usize::MAX, &mut [])), "more than memory can hold"),
    (|c| c.run(new(AllGather, usize::MAX / 8, &mut [])), "more than memory can hold"),
    (|c| c.run(new(AllGather, usize::MAX / 2, &mut [])), "more than memory can hold"),
    (|c| c.run(new(Send, usize::MAX / 2, &mut []).root(1)), "more than memory can hold"),
    (|c| c.run(new(Recv, 3, &mut [0; 11]).root(1)), "the buffer of recv has 11 bytes but 12 are needed"),
    (|c| c.run(new(SendRecv, 2, &mut [0; 8]).root(1).source(1)), "send_recv needs input and output apart"),
    (
        |c| c.run(new(Broadcast, 1, &mut [0; 4]).counts(Counts::default())),
        "broadcast takes one count, not a list of counts",
    ),
    (|c| c.run(new(AllReduce, 1, &mut [0; 4]).counts(Counts::default())), "all_reduce takes one count"),
    (|c| c.run(new(Reduce, 2, &mut [0; 7])), "the buffer of reduce has 7 bytes but 8 are needed"),
    (|c| odd_bytes(c), "buffers of 3 and 4 bytes hold no whole elements of 4"),
    (|c| offsets(c, &[0, 1, 4], &[2, 2, 2]), "the recv blocks of ranks 0 and 1 overlap"),
    (|c| offsets(c, &[4, 0, 3], &[2, 2, 2]), "the recv blocks of ranks 2 and 0 overlap"),
    (|c| offsets(c, &[0, 2], &[2, 2, 2]), "there are 2 recv offsets for 3 ranks"),
    (|c| offsets(c, &[0, 2, 5], &[2, 2, 2]), "output of all_gather has 6 bytes but 7 are needed"),
    (|c| offsets(c, &[0, 2, usize::MAX], &[2, 2, 2]), "the recv block of rank 2 ends beyond what memory can hold"),
];

fn new(collective: Collective, count: usize, buffer: &mut [u8]) -> Request<'_> {
    Request::new(collective, DataType::F32, count, Buffers::InPlace(buffer))
}

fn odd_bytes(comm: &Communicator) -> Result<()> {
    let buffers = Buffers::Separate { input: &[0; 3], output: &mut [0; 4] };
    comm.run(Request::new(SendRecv, DataType::F32, 1, buffers).root(1).source(1))
}

fn offsets(comm: &Communicator, offsets: &[usize], counts: &[usize]) -> Result<()> {
    let buffers = Buffers::Separate { input: &[1; 2], output: &mut [0; 6] };
    let given = Counts { recv_counts: counts, recv_offsets: offsets, ..Counts::default() };
    comm.run(Request::new(AllGather, DataType::U8, 0, buffers).counts(given))
}

fn refuse(what: &str, end: Result<()>, why: &str) {
    let error: Error = end.expect_err(what);
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{what}: {error}");
    assert!(error.to_string().contains(why), "{what}: {error}; not {why:?}");
    assert!(error.call().is_none() && error.reporter().is_none(), "{what}: nothing has begun: {error:?}");
}

#[test]
fn what_cannot_be_meant_is_refused_and_does_no_harm() {
    for wire in [Wire::Inproc, Wire::Shm] {
        on_each(wire, 3, |comm| {
            for (number, (call, why)) in REFUSED.iter().enumerate() {
                if comm.rank() == 0 {
                    refuse(&format!("call {number}"), call(comm), why);
                }
            }
            // All ranks go on as if nothing had been.
            let mut total = [1u8; 9];
            comm.all_reduce_in_place(&mut total, ReduceOp::Sum).unwrap();
            assert_eq!(total, [3; 9]);
            comm.barrier().unwrap();
        });
    }
}

/// Safe code can't make such buffers; foreign code can.
#[test]
fn buffers_that_overlap_are_refused() {
    on_each(Wire::Inproc, 2, |comm| {
        for (collective, count) in
            [(AllReduce, 4), (AllGather, 2), (ReduceScatter, 2), (AllToAll, 2), (Gather, 2), (Scatter, 2)]
        {
            let mut memory = [0f32; 16];
            let bytes = as_bytes_mut(&mut memory);
            let start = bytes.as_mut_ptr();
            // SAFETY: both lie in `memory`, and the call refuses them before it reads or writes either.
            let (input, output) =
                unsafe { (std::slice::from_raw_parts(start, 16), std::slice::from_raw_parts_mut(start.add(12), 16)) };
            let end = comm.run(Request::new(collective, DataType::F32, count, Buffers::Separate { input, output }));
            refuse(collective.name(), end, &format!("input and output of {collective} overlap by 4 bytes"));
        }
        comm.barrier().unwrap();
    });
}
