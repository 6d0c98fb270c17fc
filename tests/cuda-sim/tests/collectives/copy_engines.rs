//! all_gather and all_to_all that are left to copy engines.

use std::time::Instant;

use paceline_comm::cuda::{AttachOptions, DeviceBuffers, DeviceVec};
use paceline_comm::{Collective, Communicator, DataType, ErrorKind, Request};
use paceline_cuda_sim::Machine;
use paceline_tests::seed;

use super::processes::{is_rank, said};
use super::world::{PATIENCE, Rank, Way, device_of, is_there, ranks_attached, simulated};

const LEN: usize = 30_001;

fn element(rank: usize, turn: usize, at: usize) -> u32 {
    (at * 31 + rank * 1_000_003 + turn * 7_777_777) as u32
}

fn vector(rank: usize, turn: usize, len: usize) -> Vec<u32> {
    (0..len).map(|at| element(rank, turn, at)).collect()
}

/// Both collectives, apart and in place, from byte `4 * at` of the vectors on.
fn all(rank: &Rank, input: &mut DeviceVec<u32>, output: &mut DeviceVec<u32>, at: usize, turn: usize) {
    let (me, n) = (rank.comm.rank(), rank.comm.size());
    let on = rank.devices.on(&rank.stream);
    let block = LEN / n;
    let gathered: Vec<u32> = (0..n).flat_map(|rank| vector(rank, turn, block)).collect();
    let exchanged: Vec<u32> =
        (0..n).flat_map(|from| (me * block..(me + 1) * block).map(move |at| element(from, turn, at))).collect();
    let found = |vector: &DeviceVec<u32>| vector.to_vec().unwrap()[at..at + block * n].to_vec();
    input.write_at(at, &vector(me, turn, block * n)).unwrap();
    on.all_gather(&input.slice(at..at + block), &mut output.slice_mut(at..at + block * n)).unwrap().wait().unwrap();
    assert!(found(output) == gathered, "all_gather, rank {me} of {n}, turn {turn}");
    on.all_to_all(&input.slice(at..at + block * n), &mut output.slice_mut(at..at + block * n)).unwrap().wait().unwrap();
    assert!(found(output) == exchanged, "all_to_all, rank {me} of {n}, turn {turn}");
    let place = DeviceBuffers::InPlace((input.address() + 4 * at as u64, 4 * block * n));
    let request = Request::new(Collective::AllToAll, DataType::U32, block, place);
    // SAFETY: the vector lives until the call is over.
    unsafe { on.run(request) }.unwrap().wait().unwrap();
    assert!(found(input) == exchanged, "all_to_all in place, rank {me} of {n}, turn {turn}");
    output.write_at(at + me * block, &vector(me, turn, block)).unwrap();
    on.all_gather_in_place(&mut output.slice_mut(at..at + block * n)).unwrap().wait().unwrap();
    assert!(found(output) == gathered, "all_gather in place, rank {me} of {n}, turn {turn}");
}

#[test]
fn copies_are_what_kernels_copy() {
    if !is_there() {
        return;
    }
    for copy_engines in [None, Some(1), Some(LEN as u64 * 4)] {
        for n in [1, 2, 3, 4] {
            ranks_attached(n, Way::Direct, copy_engines, |rank| {
                let mut input = DeviceVec::<u32>::zeroed(&rank.device, LEN + 9).unwrap();
                let mut output = DeviceVec::<u32>::zeroed(&rank.device, LEN + 9).unwrap();
                all(&rank, &mut input, &mut output, 3, 1);
                let both = [rank.devices.register(&input).unwrap(), rank.devices.register(&output).unwrap()];
                assert!(both.iter().all(|it| it.is_lent()));
                all(&rank, &mut input, &mut output, 0, 2);
                all(&rank, &mut input, &mut output, 3, 3);
                both.into_iter().for_each(|it| rank.devices.deregister(it).unwrap());
                all(&rank, &mut input, &mut output, 3, 4);
                rank.devices.check().unwrap();
                rank.devices.detach().unwrap();
            });
        }
    }
}

/// What comes next in a stream may overwrite what others have read: the call has ended for all.
#[test]
fn what_was_copied_can_be_overwritten_by_the_stream() {
    if !is_there() {
        return;
    }
    ranks_attached(4, Way::Direct, Some(1), overwrite);
}

fn overwrite(rank: Rank) {
    let (me, n) = (rank.comm.rank(), rank.comm.size());
    let block = LEN / n;
    let other = DeviceVec::of(&rank.device, &vec![u32::MAX; LEN]).unwrap();
    let own = DeviceVec::of(&rank.device, &vector(me, 0, LEN)).unwrap();
    let input = DeviceVec::<u32>::zeroed(&rank.device, LEN).unwrap();
    let mut output = DeviceVec::<u32>::zeroed(&rank.device, LEN).unwrap();
    let mut registered = None;
    let want: Vec<u32> = (0..n).flat_map(|rank| vector(rank, 0, block)).collect();
    for turn in 0..20 {
        if turn == 10 {
            rank.stream.synchronize(Instant::now() + PATIENCE).unwrap();
            registered = Some(rank.devices.register(&input).unwrap());
        }
        let on = rank.devices.on(&rank.stream);
        let over = |from: &DeviceVec<u32>| {
            // SAFETY: the vectors live until the stream is done.
            unsafe { rank.stream.copy(input.address(), from.address(), 4 * LEN) }.unwrap();
        };
        over(&own);
        let work = on.all_gather(&input.slice(0..block), &mut output.slice_mut(0..block * n)).unwrap();
        over(&other);
        work.wait().unwrap();
        assert!(output.to_vec().unwrap()[..block * n] == want, "rank {me}, turn {turn}");
    }
    rank.stream.synchronize(Instant::now() + PATIENCE).unwrap();
    rank.devices.deregister(registered.expect("after ten turns")).unwrap();
}

#[test]
fn what_was_copied_on_slow_devices_can_be_overwritten_too() {
    if is_rank() {
        return;
    }
    let shape = |machine: paceline_cuda_sim::Simulated| machine.devices(2).delayed(200, seed());
    let Some(machine) = Machine::simulated("so slow", shape) else { return };
    let test = "copy_engines::slow_ranks_that_overwrite";
    let output = machine.test(test).env("PACELINE_TEST_RANK", "1").output().expect("it starts");
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn slow_ranks_that_overwrite() {
    if is_rank() && is_there() {
        ranks_attached(3, Way::Direct, Some(1), overwrite);
    }
}

#[test]
fn calls_left_to_copy_engines_are_replayed() {
    if !is_there() {
        return;
    }
    ranks_attached(3, Way::Direct, Some(1), |rank| {
        let (me, n) = (rank.comm.rank(), rank.comm.size());
        let block = LEN / n;
        for registers in [false, true] {
            let mut input = DeviceVec::<u32>::zeroed(&rank.device, LEN).unwrap();
            let mut output = DeviceVec::<u32>::zeroed(&rank.device, LEN).unwrap();
            let registered = registers.then(|| rank.devices.register(&input).unwrap());
            let on = rank.devices.on(&rank.stream);
            // Whatever is loaded when it is first used.
            on.all_to_all(&input.slice(0..block * n), &mut output.slice_mut(0..block * n)).unwrap().wait().unwrap();
            rank.stream.begin_capture().unwrap();
            on.all_to_all(&input.slice(0..block * n), &mut output.slice_mut(0..block * n)).unwrap();
            let mut graph = rank.stream.end_capture().unwrap();
            for turn in 0..4 {
                input.write(&vector(me, turn, LEN)).unwrap();
                on.barrier().unwrap();
                graph.launch(&rank.stream).unwrap();
                rank.stream.synchronize(Instant::now() + PATIENCE).unwrap();
                let want: Vec<u32> = (0..n)
                    .flat_map(|from| (me * block..(me + 1) * block).map(move |at| element(from, turn, at)))
                    .collect();
                assert!(output.to_vec().unwrap()[..block * n] == want, "rank {me}, turn {turn}, {registers}");
            }
            if let Some(registered) = registered {
                rank.devices.deregister(registered).unwrap();
            }
        }
        rank.devices.check().unwrap();
    });
}

#[test]
fn copy_engines_leave_the_multiprocessors_alone() {
    if is_rank() {
        return;
    }
    let Some(machine) = Machine::simulated("whose launches are counted", |machine| machine.devices(2)) else { return };
    let test = "copy_engines::ranks_whose_launches_are_counted";
    let output = machine.test(test).env("PACELINE_TEST_RANK", "1").output().expect("it starts");
    assert!(output.status.success(), "{}", said(&output));
}

/// In a process of its own: others launch what they like.
#[test]
fn ranks_whose_launches_are_counted() {
    if !is_rank() || !is_there() {
        return;
    }
    let Some(driver) = simulated() else { return };
    // (the smallest that is left to copy engines, whether only flags are launched)
    for (least, only_flags) in [(1, true), (4 * LEN as u64 + 1, false)] {
        let counts = || (driver.launches(None), driver.launches(Some(c"paceline_flags")));
        let before = counts();
        ranks_attached(3, Way::Direct, Some(least), |rank| {
            let mut input = DeviceVec::<u32>::zeroed(&rank.device, LEN + 9).unwrap();
            let mut output = DeviceVec::<u32>::zeroed(&rank.device, LEN + 9).unwrap();
            all(&rank, &mut input, &mut output, 3, 1);
            let both = [rank.devices.register(&input).unwrap(), rank.devices.register(&output).unwrap()];
            all(&rank, &mut input, &mut output, 3, 2);
            both.into_iter().for_each(|it| rank.devices.deregister(it).unwrap());
        });
        let after = counts();
        let (kernels, flags) = (after.0 - before.0, after.1 - before.1);
        assert!(kernels > 0 && (flags == if only_flags { kernels } else { 0 }), "{kernels} launches, {flags} of flags");
    }
}

#[test]
fn registered_vectors_at_different_places_are_told() {
    if !is_there() {
        return;
    }
    let errors = ranks_attached(2, Way::Direct, Some(1), |rank| {
        let (me, block) = (rank.comm.rank(), LEN / 2);
        let input = DeviceVec::<u32>::zeroed(&rank.device, LEN + 9).unwrap();
        let mut output = DeviceVec::<u32>::zeroed(&rank.device, LEN).unwrap();
        let _registered = rank.devices.register(&input).unwrap();
        let on = rank.devices.on(&rank.stream);
        on.all_gather(&input.slice(me..me + block), &mut output.slice_mut(0..2 * block)).unwrap().wait().unwrap_err()
    });
    // What one of them finds, both may say.
    for error in errors {
        assert_eq!((error.kind(), error.peers().len()), (ErrorKind::Mismatch, 1), "{error}");
        for says in ["from byte ", " of registered vector 0", "at the same place of the same registered vectors"] {
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}

#[test]
fn ranks_that_leave_different_things_to_copy_engines_are_told() {
    if !is_there() {
        return;
    }
    let comms = Communicator::in_process(2).unwrap();
    std::thread::scope(|scope| {
        for comm in comms {
            scope.spawn(move || {
                let options = AttachOptions { copy_engines: (comm.rank() == 0).then_some(1), ..Default::default() };
                let error = comm.attach_with(Some(&device_of(comm.rank())), &options).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
            });
        }
    });
}
