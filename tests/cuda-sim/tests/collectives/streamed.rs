//! Calls that name an algorithm are work of streams, with the bits of the same row on the host.

use std::time::{Duration, Instant};

use paceline_comm::algorithm::{ROWS, Row, row};
use paceline_comm::cuda::{DeviceBuffers, DeviceCommunicator, DeviceVec, Priority};
use paceline_comm::{Buffers, CallOptions, Collective, Communicator, DataType, ErrorKind, ReduceOp, Request};
use paceline_cuda_sim::{Machine, jobs};
use paceline_tests::case::Case;
use paceline_tests::noise::noise;
use paceline_tests::{Random, is_asked_for, mix, seed};

use super::processes::{is_rank, job, said};
use super::world::{PATIENCE, Rank, Way, device_of, is_there, ranks, ranks_that_may_race};

fn naming(devices: &DeviceCommunicator, name: &str) -> DeviceCommunicator {
    devices.with(CallOptions { timeout: Some(PATIENCE), algorithm: Some(name.into()) })
}

/// Elements: none, few, no multiple of anything, and more than the bays of these ranks hold at once.
const COUNTS: [usize; 6] = [0, 1, 7, 1000, 4099, 70_001];

/// Every row with these types, each with some operators, lengths and places.
fn cases(n: usize, types: &[DataType], operators: &[ReduceOp]) -> Vec<(Case, usize)> {
    let random = &mut Random::new(mix(seed() ^ n as u64 ^ 0x57e4));
    let mut cases = Vec::new();
    for row in ROWS.iter().filter(|row| row.collective != Collective::Barrier && (row.fits)(n as u32)) {
        for data_type in types {
            let count = COUNTS[random.below(COUNTS.len() as u64) as usize];
            let divides = row.collective.has_blocks();
            let case = Case {
                row,
                ranks: n,
                data_type: *data_type,
                op: if row.collective.reduces() {
                    operators[random.below(operators.len() as u64) as usize]
                } else {
                    ReduceOp::Sum
                },
                count: if divides { count / n } else { count },
                root: random.below(n as u64) as usize,
                in_place: random.below(2) == 0,
                uneven: Case::may_be_uneven(row) && random.below(3) == 0,
                seed: random.next(),
            };
            cases.push((case, data_type.size() * random.below(4) as usize));
        }
    }
    cases
}

fn run_all(rank: &Rank, cases: &[(Case, usize)]) {
    for (case, shift) in cases {
        let devices = naming(&rank.devices, case.row.name);
        let part = case.part(rank.comm.rank(), &case.columns());
        let wrong = part.run_by(*shift, |request| rank.run_on(&devices, request, *shift));
        let wrong = wrong.unwrap_or_else(|error| panic!("{case:?}: {error}"));
        assert_eq!(wrong, None, "{case:?}, rank {}", rank.comm.rank());
    }
    rank.devices.check().expect("nothing has failed");
}

const FEW: [ReduceOp; 3] = [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::PreMulSum(0)];

#[test]
fn every_row_conforms() {
    if !is_there() {
        return;
    }
    let types = [DataType::F32, DataType::Bf16, DataType::I64];
    let is_full = is_asked_for("PACELINE_FULL");
    for (n, few) in [(1, &types[..1]), (2, &types[..1]), (3, &types[1..]), (4, &types[..1])] {
        let cases = cases(n, if is_full { &types } else { few }, &FEW);
        println!("{} cases, {n} ranks", cases.len());
        ranks(n, Way::Direct, |rank| {
            run_all(&rank, &cases);
            rank.devices.detach().expect("the boards are given back");
        });
    }
}

#[test]
fn every_row_conforms_on_slow_devices() {
    if is_rank() {
        return;
    }
    let shape = |machine: paceline_cuda_sim::Simulated| machine.devices(2).delayed(60, seed());
    let Some(machine) = Machine::simulated("so slow", shape) else { return };
    let output =
        machine.test("streamed::rows_of_slow_ranks").env("PACELINE_TEST_RANK", "1").output().expect("it starts");
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn rows_of_slow_ranks() {
    if is_rank() && is_there() {
        let cases = cases(3, &[DataType::F32], &FEW[..1]);
        ranks(3, Way::Direct, |rank| run_all(&rank, &cases));
    }
}

#[test]
fn every_row_of_processes_on_one_device_conforms() {
    if is_rank() {
        return;
    }
    let Some(machine) = Machine::with_devices(1) else { return };
    for n in jobs() {
        for output in job(&machine, *n, "streamed::a_rank_of_processes", &[]) {
            assert!(output.status.success(), "{n} ranks: {}", said(&output));
        }
    }
}

#[test]
fn a_rank_of_processes() {
    if !is_rank() || std::env::var_os("PACELINE_SIZE").is_none() {
        return;
    }
    let comm = Communicator::from_env().expect("ranks meet");
    let comm = comm.with(CallOptions { timeout: Some(PATIENCE), ..CallOptions::default() });
    let rank = Rank::new(&comm, Way::Direct).expect("devices are attached");
    run_all(&rank, &cases(comm.size(), &[DataType::F32], &FEW[..1]));
    rank.devices.detach().expect("the boards are given back");
}

/// What every rank gets, by streams and on the host, from elements whose sums depend on the order.
fn both(rank: &Rank, row: &Row, (data_type, op): (DataType, ReduceOp), count: usize) -> [Vec<u8>; 2] {
    let (me, n) = (rank.comm.rank(), rank.comm.size());
    let scatters = row.collective == Collective::ReduceScatter;
    let input = noise(data_type, &mut Random::new(me as u64), count * if scatters { n } else { 1 });
    let options = CallOptions { timeout: Some(PATIENCE), algorithm: Some(row.name.into()) };
    let devices = rank.devices.with(options.clone());
    let host = rank.comm.with(options);
    let mut outputs = [(); 2].map(|()| vec![0; count * data_type.size()]);
    for (turn, output) in outputs.iter_mut().enumerate() {
        let buffers = Buffers::Separate { input: &input, output };
        let request = Request::new(row.collective, data_type, count, buffers).op(op).root(n - 1);
        match turn {
            0 => rank.run_on(&devices, request, data_type.size()),
            _ => host.run(request),
        }
        .unwrap_or_else(|error| panic!("{} {}: {error}", row.collective, row.name));
    }
    outputs
}

#[test]
fn every_fold_has_the_bits_of_the_host() {
    if !is_there() {
        return;
    }
    let is_full = is_asked_for("PACELINE_FULL");
    for n in if is_full { 3..=4 } else { 3..=3 } {
        ranks(n, Way::Direct, |rank| {
            for row in ROWS.iter().filter(|row| row.collective.reduces() && (row.fits)(n as u32)) {
                for (data_type, op) in [
                    (DataType::F32, ReduceOp::Sum),
                    (DataType::Bf16, ReduceOp::Avg),
                    (DataType::F32, ReduceOp::PreMulSum(0x3fc0_0000)),
                    (DataType::Bf16, ReduceOp::Max),
                ] {
                    // Also so many that the host cuts the vector into slices.
                    let is_cut = n == 3 && op == ReduceOp::Sum && (is_full || row.name == "ring");
                    for count in [7, if is_cut { 150_001 } else { 4099 }] {
                        let [streams, host] = both(&rank, row, (data_type, op), count);
                        let what = format!("{} {}, {count} {data_type} ({op}), {n} ranks", row.collective, row.name);
                        assert!(streams == host, "{what}: rank {}", rank.comm.rank());
                    }
                }
            }
        });
    }
}

#[test]
fn whatever_names_an_algorithm_stays_on_the_devices() {
    if !is_there() {
        return;
    }
    ranks(3, Way::Direct, |rank| {
        let input = DeviceVec::<u8>::zeroed(&rank.device, 300).unwrap();
        let output = DeviceVec::<u8>::zeroed(&rank.device, 300).unwrap();
        let run = |row: &Row| {
            let buffers = DeviceBuffers::Separate { input: (input.address(), 300), output: (output.address(), 300) };
            let count = if row.collective == Collective::Barrier { 0 } else { 100 };
            let request = Request::new(row.collective, DataType::U8, count, buffers);
            // SAFETY: both vectors live until the call is over.
            let work = unsafe { naming(&rank.devices, row.name).on(&rank.stream).run(request) }.unwrap();
            assert!(format!("{work:?}").contains("on the device"), "{} {}: {work:?}", row.collective, row.name);
            work.wait().unwrap();
        };
        ROWS.iter().for_each(run);
        let mut vector = DeviceVec::<u8>::zeroed(&rank.device, 300).unwrap();
        let named = naming(&rank.devices, "nobody");
        let error = named.on(&rank.stream).all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("no algorithm nobody"), "{error}");
        // Nobody knows the longest of these blocks.
        let named = naming(&rank.devices, "pairwise");
        let counts = [1, 1, 1];
        let (from, mut to) = (vector.slice(0..3), DeviceVec::<u8>::zeroed(&rank.device, 3).unwrap());
        let work = named.on(&rank.stream).all_to_all_v(&from, &counts, &mut to, &counts).unwrap();
        assert!(!format!("{work:?}").contains("on the device"), "{work:?}");
        work.wait().unwrap();
    });
}

#[test]
fn a_row_in_a_graph_is_replayed() {
    if !is_there() {
        return;
    }
    ranks(3, Way::Direct, |rank| {
        for name in ["ring", "double_tree", "direct", "recursive_doubling"] {
            let named = naming(&rank.devices, name);
            let mut vector = DeviceVec::of(&rank.device, &vec![1i64; 9_001]).unwrap();
            let mut call = || named.on(&rank.stream).all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap();
            call().wait().unwrap();
            rank.stream.begin_capture().unwrap();
            call();
            call();
            let mut graph = rank.stream.end_capture().unwrap();
            for _ in 0..3 {
                graph.launch(&rank.stream).unwrap();
                // Other calls come between, of streams and of kernels.
                call();
            }
            rank.devices.on(&rank.stream).all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap().wait().unwrap();
            assert!(vector.to_vec().unwrap() == vec![3i64.pow(11); 9_001], "{name}");
            rank.devices.check().unwrap();
        }
    });
}

/// Streams and kernels by turns, over other lengths each time, without waiting for any.
#[test]
fn rows_follow_kernels_and_messages() {
    if !is_there() {
        return;
    }
    ranks(4, Way::Direct, |rank| {
        let (me, n) = (rank.comm.rank(), rank.comm.size());
        let rows: Vec<&Row> = ROWS.iter().filter(|row| row.collective == Collective::AllReduce).collect();
        let mut vector = DeviceVec::of(&rank.device, &vec![1u64; 30_011]).unwrap();
        let (sent, mut got) = (
            DeviceVec::of(&rank.device, &[me as u32; 9000]).unwrap(),
            DeviceVec::<u32>::zeroed(&rank.device, 9000).unwrap(),
        );
        for turn in 0..24 {
            let devices = if turn % 3 == 2 {
                rank.devices.with(CallOptions { timeout: Some(PATIENCE), ..CallOptions::default() })
            } else {
                naming(&rank.devices, rows[turn % rows.len()].name)
            };
            let mut part = vector.slice_mut(0..30_011 - 1000 * turn);
            devices.on(&rank.stream).all_reduce_in_place(&mut part, ReduceOp::Sum).unwrap();
            if turn % 5 == 0 {
                rank.devices.on(&rank.stream).send_recv(&sent, (me + 1) % n, &mut got, (me + n - 1) % n).unwrap();
            }
        }
        rank.devices.on(&rank.stream).barrier().unwrap().wait().unwrap();
        let want: Vec<u64> = (0..30_011)
            .map(|at| (0..24).fold(1, |sum, turn| if at < 30_011 - 1000 * turn { sum * 4 } else { sum }))
            .collect();
        assert!(vector.to_vec().unwrap() == want, "rank {me}");
        assert_eq!(got.to_vec().unwrap(), vec![((me + n - 1) % n) as u32; 9000]);
    });
}

/// Runs a test in a process of its own, in which streams may race when their calls have failed.
fn alone(test: &str) {
    if is_rank() {
        return;
    }
    let Some(machine) = Machine::here() else { return };
    let output = machine.test(test).env("PACELINE_TEST_RANK", "1").output().expect("it starts");
    assert!(output.status.success(), "{test}: {}", said(&output));
}

#[test]
fn a_rank_that_does_not_come_to_a_row_is_named() {
    alone("streamed::ranks_of_which_one_does_not_come");
}

#[test]
fn ranks_of_which_one_does_not_come() {
    if !is_rank() || !is_there() {
        return;
    }
    ranks_that_may_race(3, Way::Direct, None, |rank| {
        let mut vector = DeviceVec::of(&rank.device, &[1.0f32; 1000]).unwrap();
        let ring = naming(&rank.devices, "ring");
        ring.on(&rank.stream).all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap().wait().unwrap();
        // One that is late is waited for.
        if rank.comm.rank() == 1 {
            std::thread::sleep(Duration::from_millis(300));
        }
        ring.on(&rank.stream).all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap().wait().unwrap();
        assert_eq!(vector.to_vec().unwrap(), [9.0; 1000]);
        if rank.comm.rank() == 2 {
            std::thread::sleep(Duration::from_millis(2500));
            return;
        }
        let hasty = CallOptions { timeout: Some(Duration::from_millis(800)), algorithm: Some("ring".into()) };
        let hasty = rank.devices.with(hasty);
        let work = hasty.on(&rank.stream).all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap();
        let error = work.wait_timeout(PATIENCE).unwrap_err();
        assert_eq!((error.kind(), error.peers()), (ErrorKind::Timeout, &[2][..]), "{error}");
        assert!(error.to_string().contains("all_reduce of 1000 float (ring)"), "{error}");
        // The stream goes on, and nothing is begun any more.
        rank.stream.synchronize(Instant::now() + PATIENCE).unwrap();
        let again = hasty.on(&rank.stream).all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap_err();
        assert!(again.to_string().contains("has failed"), "{again}");
    });
}

#[test]
fn rows_that_differ_are_told() {
    alone("streamed::ranks_with_rows_that_differ");
}

#[test]
fn ranks_with_rows_that_differ() {
    if !is_rank() || !is_there() {
        return;
    }
    // What rank 1 calls where the others call the ring of 1000 elements.
    for (name, len) in [(Some("double_tree"), 1000), (Some("ring"), 999), (None, 1000)] {
        let errors = ranks_that_may_race(3, Way::Direct, None, |rank| {
            let mut vector = DeviceVec::of(&rank.device, &[1.0f32; 1000]).unwrap();
            let is_odd = rank.comm.rank() == 1;
            let algorithm = if is_odd { name } else { Some("ring") }.map(str::to_owned);
            let devices = rank.devices.with(CallOptions { timeout: Some(PATIENCE), algorithm });
            let mut part = vector.slice_mut(0..if is_odd { len } else { 1000 });
            let work = devices.on(&rank.stream).all_reduce_in_place(&mut part, ReduceOp::Sum).unwrap();
            work.wait().unwrap_err()
        });
        // What one of them finds, all may say.
        for error in errors {
            assert_eq!((error.kind(), error.peers().len()), (ErrorKind::Mismatch, 1), "{name:?}, {len}: {error}");
        }
    }
}

#[test]
fn a_rank_that_dies_in_a_row_is_named() {
    if is_rank() {
        return;
    }
    let Some(machine) = Machine::here() else { return };
    for name in ["ring", "double_tree"] {
        let outputs = job(&machine, 3, "streamed::a_rank_of_which_one_dies", &[("PACELINE_TEST_ROW", name)]);
        for (rank, output) in outputs.iter().enumerate() {
            assert_eq!(output.status.success(), rank != 1, "rank {rank}, {name}: {}", said(output));
        }
    }
}

/// Rank 1 dies while rows are under way.
#[test]
fn a_rank_of_which_one_dies() {
    let Ok(name) = std::env::var("PACELINE_TEST_ROW") else { return };
    let comm = Communicator::from_env().unwrap();
    let device = device_of(comm.rank());
    let stream = device.stream(Priority::Normal).unwrap();
    let devices = naming(&comm.attach(Some(&device)).unwrap(), &name);
    let mut vector = DeviceVec::of(&device, &vec![1.0f32; 3_000_000]).unwrap();
    let on = devices.on(&stream);
    on.all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap().wait().unwrap();
    let began = Instant::now();
    if comm.rank() == 1 {
        for _ in 0..1000 {
            on.all_reduce_in_place(&mut vector, ReduceOp::Max).unwrap();
            if began.elapsed() > Duration::from_millis(60) {
                std::process::abort();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let mut once = || on.all_reduce_in_place(&mut vector, ReduceOp::Max);
    let error = (0..10_000).find_map(|_| once().and_then(|work| work.wait()).err()).expect("rank 1 is gone");
    assert!(matches!(error.kind(), ErrorKind::PeerDied | ErrorKind::PeerLeft), "{error}");
    assert_eq!(error.peers(), [1], "{error}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    stream.synchronize(Instant::now() + PATIENCE).unwrap();
    assert!(devices.check().is_err());
}

#[test]
fn the_environment_names_algorithms_of_devices_too() {
    if is_rank() {
        return;
    }
    let Some(machine) = Machine::with_devices(1) else { return };
    for output in
        job(&machine, 2, "streamed::a_rank_of_an_environment", &[("PACELINE_ALGORITHM", "all_reduce=double_tree")])
    {
        assert!(output.status.success(), "{}", said(&output));
    }
}

#[test]
fn a_rank_of_an_environment() {
    if !is_rank() || std::env::var_os("PACELINE_ALGORITHM").is_none() {
        return;
    }
    let comm = Communicator::from_env().unwrap();
    let rank = Rank::new(&comm, Way::Direct).unwrap();
    let tree = row(Collective::AllReduce, "double_tree").unwrap();
    let count = 4099;
    let input = noise(DataType::F32, &mut Random::new(comm.rank() as u64), count);
    let mut outputs = [vec![0; 4 * count], vec![0; 4 * count]];
    let call = |output: &mut Vec<u8>, on_device: bool| {
        let buffers = Buffers::Separate { input: &input, output };
        let request = Request::new(tree.collective, DataType::F32, count, buffers);
        if on_device { rank.run(request, 0) } else { comm.run(request) }
    };
    call(&mut outputs[0], true).unwrap();
    call(&mut outputs[1], false).unwrap();
    assert!(outputs[0] == outputs[1], "the row of the environment");
    let launched = super::world::simulated().map(|driver| driver.launches(Some(c"paceline_flags")));
    assert!(launched.is_none_or(|launched| launched > 0), "no stream ran it");
}
