//! The typed calls: each once on every kind of link, with blocks of one length and of several.

use half::bf16;
use paceline_comm::{Communicator, ReduceOp};
use paceline_tests::world::{Wire, on_each};

const COUNT: usize = 37;

fn value(rank: usize, at: usize) -> i64 {
    (rank * 1000 + at) as i64
}

fn vector(rank: usize, len: usize) -> Vec<i64> {
    (0..len).map(|at| value(rank, at)).collect()
}

fn sums(ranks: usize, range: std::ops::Range<usize>) -> Vec<i64> {
    range.map(|at| (0..ranks).map(|rank| value(rank, at)).sum()).collect()
}

#[test]
fn every_typed_call_does_what_it_says() {
    for wire in Wire::threads() {
        for ranks in [1, 2, 3, 5] {
            on_each(wire, ranks, |comm| {
                vectors(comm);
                blocks(comm);
                (0..ranks).for_each(|root| rooted(comm, root));
                uneven(comm);
                comm.barrier().unwrap();
            });
        }
    }
}

fn vectors(comm: &Communicator) {
    let (me, n) = (comm.rank(), comm.size());
    let mut output = vec![0; COUNT];
    comm.all_reduce(&vector(me, COUNT), &mut output, ReduceOp::Sum).unwrap();
    assert_eq!(output, sums(n, 0..COUNT));
    let mut buffer = vector(me, COUNT);
    comm.all_reduce_in_place(&mut buffer, ReduceOp::Max).unwrap();
    assert_eq!(buffer, vector(n - 1, COUNT));
    let mut average = [bf16::from_f32(me as f32)];
    comm.all_reduce_in_place(&mut average, ReduceOp::Avg).unwrap();
    assert_eq!(average, [bf16::from_f32((n - 1) as f32 / 2.0)]);
    let mut weighted = [1.0f64];
    comm.all_reduce_in_place(&mut weighted, ReduceOp::pre_mul_sum(me as f64 + 1.0)).unwrap();
    assert_eq!(weighted, [(n * (n + 1) / 2) as f64]);
}

fn blocks(comm: &Communicator) {
    let (me, n) = (comm.rank(), comm.size());
    let all: Vec<i64> = (0..n).flat_map(|rank| vector(rank, COUNT)).collect();
    let mut output = vec![0; n * COUNT];
    comm.all_gather(&vector(me, COUNT), &mut output).unwrap();
    assert_eq!(output, all);
    let mut buffer = vec![0; n * COUNT];
    buffer[me * COUNT..][..COUNT].copy_from_slice(&vector(me, COUNT));
    comm.all_gather_in_place(&mut buffer).unwrap();
    assert_eq!(buffer, all);
    let mine = me * COUNT..(me + 1) * COUNT;
    let mut block = vec![0; COUNT];
    comm.reduce_scatter(&vector(me, n * COUNT), &mut block, ReduceOp::Sum).unwrap();
    assert_eq!(block, sums(n, mine.clone()));
    let mut buffer = vector(me, n * COUNT);
    comm.reduce_scatter_in_place(&mut buffer, ReduceOp::Sum).unwrap();
    assert_eq!(buffer[mine.clone()], sums(n, mine.clone()));
    let turned: Vec<i64> = (0..n).flat_map(|rank| vector(rank, n * COUNT)[mine.clone()].to_vec()).collect();
    let mut output = vec![0; n * COUNT];
    comm.all_to_all(&vector(me, n * COUNT), &mut output).unwrap();
    assert_eq!(output, turned);
    let mut buffer = vector(me, n * COUNT);
    comm.all_to_all_in_place(&mut buffer).unwrap();
    assert_eq!(buffer, turned);
}

fn rooted(comm: &Communicator, root: usize) {
    let (me, n) = (comm.rank(), comm.size());
    let at_root = |len: usize| if me == root { len } else { 0 };
    let mut output = vec![0; at_root(COUNT)];
    comm.reduce(&vector(me, COUNT), &mut output, ReduceOp::Sum, root).unwrap();
    assert_eq!(output, sums(n, 0..at_root(COUNT)));
    let mut buffer = vector(me, COUNT);
    comm.reduce_in_place(&mut buffer, ReduceOp::Sum, root).unwrap();
    assert_eq!(buffer, if me == root { sums(n, 0..COUNT) } else { vector(me, COUNT) });
    let mut buffer = vector(me, COUNT);
    comm.broadcast(&mut buffer, root).unwrap();
    assert_eq!(buffer, vector(root, COUNT));
    let mut output = vec![0; COUNT];
    comm.broadcast_from(&vector(me, at_root(COUNT)), &mut output, root).unwrap();
    assert_eq!(output, vector(root, COUNT));
    let mut output = vec![0; at_root(n * COUNT)];
    comm.gather(&vector(me, COUNT), &mut output, root).unwrap();
    let all: Vec<i64> = (0..at_root(n)).flat_map(|rank| vector(rank, COUNT)).collect();
    assert_eq!(output, all);
    let mut block = vec![0; COUNT];
    comm.scatter(&vector(me, at_root(n * COUNT)), &mut block, root).unwrap();
    assert_eq!(block, vector(root, n * COUNT)[me * COUNT..(me + 1) * COUNT]);
}

/// Rank `r`'s block has `r % 3` times `COUNT` elements: none for every third.
fn uneven(comm: &Communicator) {
    let (me, n) = (comm.rank(), comm.size());
    let counts: Vec<usize> = (0..n).map(|rank| rank % 3 * COUNT).collect();
    let total: usize = counts.iter().sum();
    let start: usize = counts[..me].iter().sum();
    let all: Vec<i64> = (0..n).flat_map(|rank| vector(rank, counts[rank])).collect();
    let mut output = vec![0; total];
    comm.all_gather_v(&vector(me, counts[me]), &mut output, &counts).unwrap();
    assert_eq!(output, all);
    let mut block = vec![0; counts[me]];
    comm.reduce_scatter_v(&vector(me, total), &mut block, &counts, ReduceOp::Sum).unwrap();
    assert_eq!(block, sums(n, start..start + counts[me]));
    let root = n - 1;
    let mut output = vec![0; if me == root { total } else { 0 }];
    comm.gather_v(&vector(me, counts[me]), &mut output, &counts, root).unwrap();
    assert_eq!(output, if me == root { all } else { Vec::new() });
    let mut block = vec![0; counts[me]];
    comm.scatter_v(&vector(me, if me == root { total } else { 0 }), &counts, &mut block, root).unwrap();
    assert_eq!(block, vector(root, total)[start..start + counts[me]]);
    // Rank `a` has `a + b` mod 3 elements for rank `b`, and one more if it is the lower one.
    let between = |a: usize, b: usize| (a + b) % 3 + usize::from(a < b);
    let (send, recv): (Vec<_>, Vec<_>) = (0..n).map(|peer| (between(me, peer), between(peer, me))).unzip();
    let mut output = vec![0; recv.iter().sum()];
    comm.all_to_all_v(&vector(me, send.iter().sum()), &send, &mut output, &recv).unwrap();
    let from = |rank: usize| {
        let start: usize = (0..me).map(|to| between(rank, to)).sum();
        (start..start + between(rank, me)).map(move |at| value(rank, at))
    };
    assert_eq!(output, (0..n).flat_map(from).collect::<Vec<_>>());
}
