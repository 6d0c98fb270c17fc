//! One rank makes another call than the rest: every rank must end with an error that names both sides.
//!
//! Those whose part in the call can't come to an end are told in it. The others are told in the barrier after it; one that
//! has heard from everyone there, before anyone had found out, in the next.

use std::time::{Duration, Instant};

use paceline_comm::algorithm::{ROWS, Row};
use paceline_comm::{
    Buffers, CallOptions, Collective, Communicator, DataType, Error, ErrorKind, ReduceOp, Request, Result,
};
use paceline_tests::world::{PATIENCE, Wire, at_once, world};

/// A call as far as ranks may disagree on it.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Call {
    collective: Collective,
    data_type: DataType,
    op: ReduceOp,
    count: usize,
    root: usize,
}

impl Call {
    fn of(collective: Collective) -> Call {
        Call { collective, data_type: DataType::F32, op: ReduceOp::Sum, count: 6, root: 0 }
    }

    /// Makes the call with buffers that are large enough for anything.
    fn make(&self, comm: &Communicator, algorithm: Option<&str>) -> Result<()> {
        let bytes = self.count * self.data_type.size() * comm.size();
        let (input, mut output) = (vec![1; bytes], vec![0; bytes]);
        let buffers = Buffers::Separate { input: &input, output: &mut output };
        let request = Request::new(self.collective, self.data_type, self.count, buffers).op(self.op).root(self.root);
        comm.with(CallOptions { timeout: Some(PATIENCE), algorithm: algorithm.map(str::to_owned) }).run(request)
    }

    /// What an error must say of it.
    fn words(&self) -> Vec<String> {
        let mut words = vec![self.collective.name().to_owned()];
        if self.collective != Collective::Barrier {
            words.push(format!("of {} {}", self.count, self.data_type));
        }
        if self.collective.reduces() {
            words.push(self.op.name().to_owned());
        }
        if self.collective.has_root() {
            words.push(format!("root {}", self.root));
        }
        words
    }
}

/// How a rank may differ from the others in a call of that collective.
fn others(call: Call) -> Vec<Call> {
    let mut others = Vec::new();
    if call.collective != Collective::Barrier {
        others.push(Call { count: call.count + 1, ..call });
        others.push(Call { count: 0, ..call });
        // As long in bytes, and still something else.
        others.push(Call { data_type: DataType::I32, ..call });
        others.push(Call { data_type: DataType::F64, count: call.count / 2, ..call });
    }
    if call.collective.reduces() {
        others.push(Call { op: ReduceOp::Max, ..call });
    }
    if call.collective.has_root() {
        others.push(Call { root: 1, ..call });
    }
    others
}

/// Rank `odd` of `ranks` makes the call `theirs`, the others `ours`; then all want to pass a barrier.
fn check(wire: Wire, ranks: usize, odd: usize, ours: (Call, Option<&str>), theirs: (Call, Option<&str>)) {
    let what = format!("{wire:?}, {ranks} ranks, rank {odd} calls {theirs:?}, the others {ours:?}");
    let begin = Instant::now();
    let ends: Vec<Result<Error, String>> = at_once(world(wire, ranks), |comm| {
        let (call, algorithm) = if comm.rank() == odd { theirs } else { ours };
        match call.make(&comm, algorithm).and_then(|()| comm.barrier()).and_then(|()| comm.barrier()) {
            Ok(()) => Err("nobody told it".into()),
            Err(error) => Ok(error),
        }
    });
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(5), "{what}: took {took:?}: {ends:?}");
    for (rank, end) in ends.iter().enumerate() {
        let error = end.as_ref().unwrap_or_else(|why| panic!("{what}: rank {rank}: {why}; {ends:?}"));
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{what}: rank {rank}: {error}");
        let text = error.to_string();
        for word in ours.0.words().into_iter().chain(theirs.0.words()) {
            assert!(text.contains(&word), "{what}: rank {rank} isn't told {word:?}: {text}");
        }
        assert!(text.contains(&format!("rank {odd}")), "{what}: rank {rank} isn't told who: {text}");
        assert!(error.what_to_try().is_some(), "{what}: rank {rank}: {text}");
    }
}

fn check_row(wire: Wire, row: &'static Row, ranks: usize, odd: usize) {
    let ours = Call::of(row.collective);
    let named = Some(row.name);
    // Where neither side has anything to send to the other they find out only when they have waited for a while.
    at_once(others(ours), |theirs| check(wire, ranks, odd, (ours, named), (theirs, named)));
}

#[test]
fn a_rank_that_differs_is_found_by_every_row() {
    for row in ROWS {
        at_once(vec![(2, 1), (3, 0), (4, 3)], |(ranks, odd)| check_row(Wire::Inproc, row, ranks, odd));
    }
}

#[test]
fn a_rank_that_differs_is_found_on_every_link() {
    for (number, row) in ROWS.iter().enumerate() {
        let wire = [Wire::Shm, Wire::Tcp, Wire::Shm, Wire::Streams][number % 4];
        check_row(wire, row, 2 + number % 2, number % 2);
    }
}

#[test]
fn collectives_that_differ_are_found() {
    use Collective::{AllGather, AllReduce, AllToAll, Barrier, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
    let all = [AllReduce, Reduce, Broadcast, AllGather, ReduceScatter, AllToAll, Gather, Scatter, Barrier];
    for (number, ours) in all.into_iter().enumerate() {
        let wire = [Wire::Inproc, Wire::Shm][number % 2];
        at_once(all.into_iter().filter(|theirs| *theirs != ours).collect(), |theirs| {
            check(wire, 2 + number % 2, 1, (Call::of(ours), None), (Call::of(theirs), None));
        });
    }
}

#[test]
fn algorithms_that_differ_are_found() {
    let rows: Vec<&Row> = ROWS.iter().filter(|row| row.collective == Collective::AllReduce).collect();
    for ours in &rows {
        at_once(rows.iter().filter(|theirs| theirs.name != ours.name).collect(), |theirs| {
            let call = Call::of(Collective::AllReduce);
            check(Wire::Inproc, 3, 2, (call, Some(ours.name)), (call, Some(theirs.name)));
        });
    }
}

/// Messages: lengths and types of both sides.
#[test]
fn a_message_of_another_length_or_type_is_found() {
    type Half = fn(&Communicator) -> Result<()>;
    let cases: [(Half, Half, &[&str]); 5] = [
        (|comm| comm.send(&[1u8; 5], 1), |comm| comm.recv(&mut [0u8; 6], 0), &["5 uint8", "6 uint8"]),
        (|comm| comm.send(&[1u8; 6], 1), |comm| comm.recv(&mut [0u8; 5], 0), &["6 uint8", "5 uint8"]),
        (|comm| comm.send(&[1f32; 4], 1), |comm| comm.recv(&mut [0i32; 4], 0), &["4 float", "4 int32"]),
        (|comm| comm.send(&[1u8; 0], 1), |comm| comm.recv(&mut [0u8; 2], 0), &["0 uint8", "2 uint8"]),
        (
            |comm| comm.send_recv(&[1u8; 3], 1, &mut [0u8; 3], 1),
            |comm| comm.send_recv(&[1u8; 4], 0, &mut [0u8; 3], 0),
            &["4 uint8", "3 uint8"],
        ),
    ];
    for wire in Wire::threads() {
        for (number, (first, second, words)) in cases.iter().enumerate() {
            let ends = at_once(world(wire, 2), |comm| {
                let half = if comm.rank() == 0 { first } else { second };
                half(&comm).and_then(|()| comm.barrier()).unwrap_err()
            });
            for error in &ends {
                assert_eq!(error.kind(), ErrorKind::Mismatch, "{wire:?}, case {number}: {error}");
                for word in *words {
                    assert!(error.to_string().contains(word), "{wire:?}, case {number} lacks {word:?}: {error}");
                }
            }
        }
    }
}

/// Uneven blocks: lists of counts that differ, and blocks that one side means to be longer than the other.
#[test]
fn counts_of_uneven_blocks_that_differ_are_found() {
    type Part = fn(&Communicator, &[usize]) -> Result<()>;
    let all_to_all: Part = |comm, counts| {
        let recv: Vec<usize> = (0..3).map(|from| if from == comm.rank() { counts[from] } else { 2 }).collect();
        comm.all_to_all_v(&[1f32; 9], counts, &mut [0f32; 9], &recv)
    };
    let cases: [(Part, &[&str]); 4] = [
        (
            |comm, counts| comm.all_gather_v(&[1f32; 9], &mut [0f32; 9], counts),
            &["all_gather of float in uneven blocks"],
        ),
        (|comm, counts| comm.gather_v(&[1f32; 9], &mut [0f32; 9], counts, 0), &["gather of float in uneven blocks"]),
        (
            |comm, counts| comm.reduce_scatter_v(&[1f32; 9], &mut [0f32; 9], counts, ReduceOp::Sum),
            &["reduce_scatter of float in uneven blocks"],
        ),
        (all_to_all, &["all_to_all of 2 float between the two", "all_to_all of 3 float between the two"]),
    ];
    for wire in [Wire::Inproc, Wire::Shm, Wire::Tcp] {
        for (number, (part, words)) in cases.iter().enumerate() {
            let ends = at_once(world(wire, 3), |comm| {
                let counts = if comm.rank() == 1 { [2, 2, 3] } else { [2, 2, 2] };
                part(&comm, &counts).and_then(|()| comm.barrier()).and_then(|()| comm.barrier()).unwrap_err()
            });
            for (rank, error) in ends.iter().enumerate() {
                assert_eq!(error.kind(), ErrorKind::Mismatch, "{wire:?}, case {number}, rank {rank}: {error}");
                for word in *words {
                    assert!(error.to_string().contains(word), "{wire:?}, case {number}, rank {rank}: {error}");
                }
            }
        }
    }
}
