//! Vectors that all ranks have registered are read where they lie.

use std::time::Instant;

use paceline_comm::cuda::DeviceVec;
use paceline_comm::{ErrorKind, ReduceOp};

use super::world::{PATIENCE, Rank, Way, is_there, ranks};

/// More than what is read where it lies from on, and no multiple of anything.
const LEN: usize = 50_001;

fn element(rank: usize, at: usize) -> i32 {
    (at % 1000) as i32 * (rank as i32 + 1) + rank as i32
}

fn vector(rank: usize, len: usize) -> Vec<i32> {
    (0..len).map(|at| element(rank, at)).collect()
}

fn total(n: usize, from: usize, len: usize) -> Vec<i32> {
    (from..from + len).map(|at| (0..n).map(|rank| element(rank, at)).sum()).collect()
}

/// Every collective that reads what is lent, from `input` to `output`, at places that differ between ranks.
fn all(rank: &Rank, input: &mut DeviceVec<i32>, output: &mut DeviceVec<i32>) {
    let (me, n) = (rank.comm.rank(), rank.comm.size());
    let on = rank.devices.on(&rank.stream);
    let block = LEN / n;
    input.write_at(me, &vector(me, LEN)).unwrap();
    let mine = input.slice(me..me + LEN);
    on.all_reduce(&mine, &mut output.slice_mut(2 * me..2 * me + LEN), ReduceOp::Sum).unwrap().wait().unwrap();
    assert_eq!(output.to_vec().unwrap()[2 * me..2 * me + LEN], total(n, 0, LEN), "all_reduce, rank {me}");
    let mine = input.slice(me..me + block * n);
    on.reduce_scatter(&mine, &mut output.slice_mut(me..me + block), ReduceOp::Sum).unwrap().wait().unwrap();
    assert_eq!(output.to_vec().unwrap()[me..me + block], total(n, me * block, block), "reduce_scatter, rank {me}");
    let mine = input.slice(me..me + block);
    on.all_gather(&mine, &mut output.slice_mut(1..1 + block * n)).unwrap().wait().unwrap();
    let want: Vec<i32> = (0..n).flat_map(|rank| vector(rank, block)).collect();
    assert_eq!(output.to_vec().unwrap()[1..1 + block * n], want, "all_gather, rank {me}");
    let mine = input.slice(me..me + block * n);
    on.all_to_all(&mine, &mut output.slice_mut(0..block * n)).unwrap().wait().unwrap();
    let part = |from: usize| (me * block..(me + 1) * block).map(move |at| element(from, at));
    assert_eq!(
        output.to_vec().unwrap()[..block * n],
        (0..n).flat_map(part).collect::<Vec<_>>(),
        "all_to_all, rank {me}"
    );
    // In place, and the next call at once: nobody may write what another still reads.
    let mut both = input.slice_mut(me..me + LEN);
    for _ in 0..3 {
        on.all_reduce_in_place(&mut both, ReduceOp::Max).unwrap();
        on.all_reduce_in_place(&mut both, ReduceOp::Sum).unwrap();
    }
    on.barrier().unwrap().wait().unwrap();
    let want: Vec<i32> = vector(n - 1, LEN).iter().map(|most| most * (n as i32).pow(3)).collect();
    assert_eq!(input.to_vec().unwrap()[me..me + LEN], want, "in place, rank {me}");
}

#[test]
fn calls_over_registered_vectors_are_right() {
    if !is_there() {
        return;
    }
    for n in [1, 2, 3, 4] {
        ranks(n, Way::Direct, |rank| {
            let room = LEN + 2 * n;
            let start: Vec<i32> = (0..room as i32).collect();
            let mut input = DeviceVec::of(&rank.device, &start).unwrap();
            let mut output = DeviceVec::<i32>::zeroed(&rank.device, room).unwrap();
            let mut apart = DeviceVec::<i32>::zeroed(&rank.device, room).unwrap();
            all(&rank, &mut input, &mut output);
            input.write(&start).unwrap();
            let both = [rank.devices.register(&input).unwrap(), rank.devices.register(&output).unwrap()];
            assert!(both.iter().all(|it| it.is_lent()));
            assert_eq!(input.to_vec().unwrap(), start, "registering changes nothing in a vector");
            all(&rank, &mut input, &mut output);
            // Where one rank, or all, bring what is not registered, nothing is read where it lies.
            let last = rank.comm.rank() == n - 1;
            all(&rank, if last { &mut apart } else { &mut input }, &mut output);
            both.into_iter().for_each(|it| rank.devices.deregister(it).unwrap());
            all(&rank, &mut input, &mut output);
            rank.devices.check().unwrap();
            rank.devices.detach().unwrap();
        });
    }
}

#[test]
fn what_was_lent_can_be_overwritten_once_a_call_has_ended() {
    if !is_there() {
        return;
    }
    ranks(4, Way::Direct, |rank| {
        let (me, n) = (rank.comm.rank(), rank.comm.size());
        let input = DeviceVec::of(&rank.device, &vector(me, LEN)).unwrap();
        let mut output = DeviceVec::<i32>::zeroed(&rank.device, LEN).unwrap();
        let both = [rank.devices.register(&input).unwrap(), rank.devices.register(&output).unwrap()];
        assert!(both.iter().all(|it| it.is_lent()));
        for _ in 0..20 {
            rank.devices.on(&rank.stream).all_reduce(&input, &mut output, ReduceOp::Sum).unwrap().wait().unwrap();
            let found = output.to_vec().unwrap();
            output.write(&vec![-1; LEN]).unwrap();
            assert_eq!(found, total(n, 0, LEN), "rank {me}");
        }
        both.into_iter().for_each(|it| rank.devices.deregister(it).unwrap());
        rank.devices.check().unwrap();
        rank.devices.detach().unwrap();
    });
}

#[test]
fn calls_over_registered_vectors_are_replayed() {
    if !is_there() {
        return;
    }
    ranks(2, Way::Direct, |rank| {
        let mut vector = DeviceVec::of(&rank.device, &vec![1i32; LEN]).unwrap();
        let registered = rank.devices.register(&vector).unwrap();
        assert!(registered.is_lent());
        let mut call = || rank.devices.on(&rank.stream).all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap();
        call().wait().unwrap();
        rank.stream.begin_capture().unwrap();
        call();
        call();
        let mut graph = rank.stream.end_capture().unwrap();
        for _ in 0..3 {
            graph.launch(&rank.stream).unwrap();
            call();
        }
        rank.stream.synchronize(Instant::now() + PATIENCE).unwrap();
        assert_eq!(vector.to_vec().unwrap(), vec![1 << 10; LEN]);
        rank.devices.check().unwrap();
    });
}

#[test]
fn a_registered_vector_that_is_dropped_keeps_its_place() {
    if !is_there() {
        return;
    }
    ranks(2, Way::Direct, |rank| {
        let first = DeviceVec::of(&rank.device, &vec![5i32; LEN]).unwrap();
        let registered = rank.devices.register(&first).unwrap();
        let place = first.address();
        drop(first);
        let mut second = DeviceVec::of(&rank.device, &vec![1i32; LEN]).unwrap();
        assert_ne!(second.address(), place, "others still read there");
        rank.devices.on(&rank.stream).all_reduce_in_place(&mut second, ReduceOp::Sum).unwrap().wait().unwrap();
        assert_eq!(second.to_vec().unwrap(), vec![2; LEN]);
        rank.devices.deregister(registered).unwrap();
    });
}

#[test]
fn what_can_not_be_registered_changes_nothing() {
    if !is_there() {
        return;
    }
    for way in [Way::Host, Way::Direct] {
        ranks(2, way, |rank| {
            // One rank's has no room for what proves it.
            let len = if rank.comm.rank() == 0 { 3 } else { LEN };
            let vector = DeviceVec::of(&rank.device, &vec![7i32; len]).unwrap();
            assert!(!rank.devices.register(&vector).unwrap().is_lent(), "{way:?}");
            assert_eq!(vector.to_vec().unwrap(), vec![7; len], "{way:?}");
            let mut vector = DeviceVec::of(&rank.device, &vec![7i32; LEN]).unwrap();
            rank.devices.on(&rank.stream).all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap().wait().unwrap();
            assert_eq!(vector.to_vec().unwrap(), vec![14; LEN], "{way:?}");
            if way == Way::Direct {
                let many: Vec<_> = (0..16).map(|_| rank.devices.register(&vector).unwrap()).collect();
                let error = rank.devices.register(&vector).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
                many.into_iter().rev().for_each(|it| rank.devices.deregister(it).unwrap());
                assert!(rank.devices.register(&vector).unwrap().is_lent());
            }
        });
    }
}
