//! Every collective, type and operator against a plain fold.

use paceline_comm::algorithm::ROWS;
use paceline_comm::{CallOptions, Collective, Communicator, DataType, ReduceOp};
use paceline_cuda_sim::{Machine, is_on_gpus, jobs};
use paceline_tests::case::Case;
use paceline_tests::{Random, is_asked_for, mix, seed};

use super::processes::{is_rank, job, said};
use super::world::{PATIENCE, Rank, Way, is_there, ranks};

const OPERATORS: [ReduceOp; 6] =
    [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg, ReduceOp::PreMulSum(0)];
const COUNTS: [usize; 9] = [0, 1, 2, 7, 64, 1000, 1024, 4099, 70_001];

/// Cases in which every collective meets every type and every operator; the rest is drawn.
fn cases(n: usize, types: &[DataType], operators: &[ReduceOp], draws: usize) -> Vec<(Case, usize)> {
    let random = &mut Random::new(mix(seed() ^ n as u64));
    let mut cases = Vec::new();
    let has_bytes = |collective: &Collective| !collective.is_message() && *collective != Collective::Barrier;
    for collective in Collective::ALL.into_iter().filter(has_bytes) {
        let row = ROWS.iter().find(|row| row.collective == collective && row.name == "direct");
        let row = row.or(ROWS.iter().find(|row| row.collective == collective)).expect("a row");
        for data_type in types {
            let operators = if collective.reduces() { operators } else { &OPERATORS[..1] };
            for op in operators {
                for _ in 0..draws {
                    let count = COUNTS[random.below(COUNTS.len() as u64) as usize];
                    let is_broadcast = collective == Collective::Broadcast;
                    let case = Case {
                        row,
                        ranks: n,
                        data_type: *data_type,
                        op: *op,
                        count: if is_broadcast || !collective.has_blocks() { count } else { count / n },
                        root: random.below(n as u64) as usize,
                        in_place: random.below(3) == 0,
                        uneven: Case::may_be_uneven(row) && random.below(3) == 0,
                        seed: random.next(),
                    };
                    let shift = data_type.size() * random.below(4) as usize;
                    cases.push((case, shift));
                }
            }
        }
    }
    cases
}

fn conform(n: usize, way: Way, types: &[DataType], draws: usize) {
    if !is_there() {
        return;
    }
    let cases = cases(n, types, &OPERATORS, draws);
    println!("{} cases, {n} ranks, {way:?}", cases.len());
    ranks(n, way, |rank| run_all(rank, &cases));
}

fn run_all(rank: Rank, cases: &[(Case, usize)]) {
    for (case, shift) in cases {
        let part = case.part(rank.comm.rank(), &case.columns());
        let wrong = part.run_by(*shift, |request| rank.run(request, *shift));
        let wrong = wrong.unwrap_or_else(|error| panic!("{case:?}: {error}"));
        assert_eq!(wrong, None, "{case:?}, rank {}", rank.comm.rank());
    }
    rank.devices.check().expect("nothing has failed");
    rank.devices.detach().expect("the boards are given back");
}

/// Types whose kernels differ most; all, if asked for.
fn sample() -> Vec<DataType> {
    match is_asked_for("PACELINE_FULL") {
        true => DataType::ALL.to_vec(),
        false => vec![DataType::F32, DataType::Bf16, DataType::I64],
    }
}

#[test]
fn calls_by_the_host_conform() {
    for n in [1, 2, 3] {
        conform(n, Way::Host, &DataType::ALL, 1);
    }
}

#[test]
fn calls_on_devices_conform() {
    for n in [1, 2, 3, 4] {
        conform(n, Way::Direct, &sample(), 2);
    }
}

#[test]
fn calls_on_slow_devices_conform() {
    if is_rank() {
        return;
    }
    let shape = |machine: paceline_cuda_sim::Simulated| machine.devices(2).delayed(60, seed());
    let Some(machine) = Machine::simulated("so slow", shape) else { return };
    for test in ["conformance::a_few_calls_by_the_host", "conformance::a_few_calls_on_devices"] {
        let output = machine.test(test).env("PACELINE_TEST_RANK", "1").output().expect("it starts");
        assert!(output.status.success(), "{test}: {}", said(&output));
    }
}

#[test]
fn a_few_calls_by_the_host() {
    if is_rank() {
        conform(3, Way::Host, &[DataType::F16], 1);
    }
}

#[test]
fn a_few_calls_on_devices() {
    if is_rank() {
        conform(3, Way::Direct, &[DataType::F16], 1);
    }
}

/// What sanitizers look at: no kernel waits for another.
#[test]
fn a_rank_alone_conforms() {
    if is_rank() || !is_there() {
        return;
    }
    let cases = cases(1, &[DataType::F32], &OPERATORS[..1], 2);
    ranks(1, Way::Direct, |rank| run_all(rank, &cases));
}

#[test]
fn calls_of_processes_on_one_device_conform() {
    if is_rank() {
        return;
    }
    let Some(machine) = Machine::with_devices(1) else { return };
    for n in jobs() {
        for output in job(&machine, *n, "conformance::a_rank_of_processes", &[]) {
            assert!(output.status.success(), "{n} ranks: {}", said(&output));
        }
    }
}

/// Few cases: processes that share a GPU get it by turns, so that ranks who meet in a kernel wait for the turns of all.
#[test]
fn a_rank_of_processes() {
    if !is_rank() {
        return;
    }
    let comm = Communicator::from_env().expect("ranks meet");
    let comm = comm.with(CallOptions { timeout: Some(PATIENCE), ..CallOptions::default() });
    // Kernels of a simulated machine are compiled for some seconds each.
    let operators = if is_on_gpus() { &OPERATORS[..] } else { &OPERATORS[..1] };
    let cases = cases(comm.size(), &[DataType::F32], operators, 1);
    run_all(Rank::new(&comm, Way::Direct).expect("devices are attached"), &cases);
}
