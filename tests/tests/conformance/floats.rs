//! Floats of any value: all ranks must hold the same bits, whatever the order of the operands was.

use paceline_comm::algorithm::rows_for;
use paceline_comm::reduce::reference;
use paceline_comm::{Buffers, CallOptions, Collective, DataType, ReduceOp, Request};
use paceline_tests::exact::{OPERATORS, encode};
use paceline_tests::noise::noise;
use paceline_tests::world::{Wire, on_each};
use paceline_tests::{Random, mix, seed};

const COUNT: usize = 331;

fn types() -> impl Iterator<Item = DataType> {
    DataType::ALL.into_iter().filter(|data_type| data_type.is_float())
}

/// What rank `me` passes as the operator: factors differ from rank to rank.
fn op_of(op: ReduceOp, data_type: DataType, me: usize) -> ReduceOp {
    match op {
        ReduceOp::PreMulSum(_) => ReduceOp::PreMulSum(encode(data_type, [1.5, -3.0, 0.5, 2.0][me % 4])),
        op => op,
    }
}

fn input(data_type: DataType, op: ReduceOp, me: usize) -> Vec<u8> {
    let random =
        &mut Random::new(mix(seed() ^ (me as u64) << 16 ^ u64::from(data_type.code()) << 8 ^ u64::from(op.code())));
    noise(data_type, random, COUNT)
}

/// A row, a type and an operator, and what came of it.
type Held = (String, DataType, ReduceOp, Vec<u8>);

/// Every all-reduce of every float type and operator, by rank.
fn all_reduces(wire: Wire, ranks: usize) -> Vec<Vec<Held>> {
    on_each(wire, ranks, |comm| {
        let mut held = Vec::new();
        for row in rows_for(Collective::AllReduce).filter(|row| (row.fits)(ranks as u32)) {
            let chosen = CallOptions { timeout: Some(comm.timeout()), algorithm: Some(row.name.into()) };
            let comm = comm.with(chosen);
            for data_type in types() {
                for op in OPERATORS {
                    let input = input(data_type, op, comm.rank());
                    let mut output = vec![0; input.len()];
                    let buffers = Buffers::Separate { input: &input, output: &mut output };
                    let request = Request::new(Collective::AllReduce, data_type, COUNT, buffers);
                    comm.run(request.op(op_of(op, data_type, comm.rank()))).unwrap();
                    held.push((row.name.to_owned(), data_type, op, output));
                }
            }
        }
        held
    })
}

#[test]
fn all_ranks_hold_equal_bits() {
    for (wire, ranks) in [(Wire::Inproc, 2), (Wire::Shm, 3), (Wire::Inproc, 5), (Wire::Tcp, 4), (Wire::Inproc, 8)] {
        let held = all_reduces(wire, ranks);
        for (rank, theirs) in held.iter().enumerate() {
            for (mine, theirs) in held[0].iter().zip(theirs) {
                let (row, data_type, op, _) = mine;
                assert_eq!(mine, theirs, "{row}, {data_type} {op}, rank {rank} of {ranks}, seed {}", seed());
            }
        }
    }
}

/// With two ranks there is one order only, and its mirror image, which is the same.
#[test]
fn two_ranks_hold_what_the_reference_gives() {
    for wire in Wire::threads() {
        for (row, data_type, op, have) in &all_reduces(wire, 2)[0] {
            let scaled =
                [0, 1].map(|me| reference::scale(*data_type, op_of(*op, *data_type, me), &input(*data_type, *op, me)));
            let sum = reference::fold(*data_type, *op, &[&scaled[0], &scaled[1]]);
            let want = reference::finish(*data_type, *op, 2, &sum);
            assert_eq!(have, &want, "{row}, {data_type} {op} over {wire:?}, seed {}", seed());
        }
    }
}
