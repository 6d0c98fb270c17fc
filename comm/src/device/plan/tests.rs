//! Plans: alike where ranks must be alike, different where they differ, refused where no launch can do it.

use super::*;

const BOARDS: [u64; 17] = [0x1000; 17];

fn site(rank: usize, ranks: usize) -> Site<'static> {
    let board = Board::new(1 << 20, 8).expect("a board");
    Site { rank, board, boards: &BOARDS[..ranks], status: 8, abort: 4, limit: Duration::from_secs(1) }
}

fn call(collective: Collective, count: usize) -> Call<'static> {
    Call { collective, data_type: DataType::F32, op: ReduceOp::Sum, root: 0, count, counts: None }
}

const APART: Data = Data { input: 1 << 32, output: 1 << 40 };

fn plan(call: &Call<'_>, rank: usize, ranks: usize) -> Plan {
    Plan::new(call, APART, &site(rank, ranks), &Tuning::default()).expect("a plan")
}

#[test]
fn ranks_plan_alike_and_say_alike() {
    for collective in Collective::ALL.into_iter().filter(|collective| !collective.is_message()) {
        for count in [0, 1, 1000, 100_000, 10_000_000] {
            let call = Call { root: 2, ..call(collective, count) };
            let first = plan(&call, 0, 5);
            for rank in 0..5 {
                let other = plan(&call, rank, 5);
                assert_eq!((first.kernel, first.grid), (other.kernel, other.grid), "{call:?}");
                let alike = |plan: &Plan| (plan.arguments.span, plan.arguments.steps, plan.arguments.says);
                assert_eq!(alike(&first), alike(&other), "{call:?}");
                assert_eq!(other.arguments.says, other.arguments.expects, "{call:?}");
            }
        }
    }
}

#[test]
fn every_difference_is_said() {
    let counts = [7; 3];
    let uneven = Counts { recv_counts: &counts, send_counts: &counts, ..Counts::default() };
    let other = [7, 7, 8];
    let others = Counts { recv_counts: &other, send_counts: &other, ..Counts::default() };
    let all_reduce = call(Collective::AllReduce, 7);
    let gather = call(Collective::Gather, 7);
    let calls = [
        all_reduce,
        Call { count: 8, ..all_reduce },
        Call { op: ReduceOp::Max, ..all_reduce },
        Call { data_type: DataType::I32, ..all_reduce },
        call(Collective::Reduce, 7),
        Call { root: 1, ..call(Collective::Reduce, 7) },
        gather,
        Call { counts: Some(uneven), ..gather },
        Call { counts: Some(others), ..gather },
        call(Collective::Scatter, 7),
        Call { counts: Some(others), ..call(Collective::Scatter, 7) },
        call(Collective::Barrier, 0),
    ];
    let said: std::collections::BTreeSet<u32> = calls.iter().map(|call| plan(call, 0, 3).arguments.says[1]).collect();
    assert_eq!(said.len(), calls.len());
    let scaled = |factor| plan(&Call { op: ReduceOp::PreMulSum(factor), ..all_reduce }, 0, 3).arguments;
    assert_eq!(scaled(1).says, scaled(2).says, "a factor is each rank's own");
    let tuned = Tuning { threads: 64, ..Tuning::default() };
    let tuned = Plan::new(&all_reduce, APART, &site(0, 3), &tuned).expect("a plan");
    assert_ne!(tuned.arguments.says, plan(&all_reduce, 0, 3).arguments.says);
}

#[test]
fn what_is_in_its_place_is_not_copied() {
    let input = 1 << 20;
    let call = call(Collective::AllGather, 8);
    let in_place = Data { input: input + 32, output: input };
    let plan = Plan::new(&call, in_place, &site(1, 3), &Tuning::default()).expect("a plan");
    assert_eq!((plan.kernel, plan.arguments.incoming[..3].to_vec()), (Kernel::Copy, vec![32, 0, 32]));
    assert_eq!(plan.arguments.targets[..3], [input, input + 32, input + 64]);
    assert_eq!((plan.arguments.sources[0], plan.arguments.outgoing[0]), (input + 32, 32));
}

#[test]
fn what_no_launch_can_do_is_refused() {
    let (vector, all_gather, exchange) =
        (call(Collective::AllReduce, 8), call(Collective::AllGather, 8), call(Collective::AllToAll, 8));
    let uneven = Counts { send_counts: &[8, 4], recv_counts: &[8, 8], ..Counts::default() };
    let here = site(0, 2);
    let sound = Tuning::default();
    let at = |input, output| Data { input, output };
    let cases: [(Call<'_>, Data, Site<'_>, Tuning, &str); 16] = [
        (vector, APART, site(0, 17), sound, "1 to 16 ranks"),
        (vector, APART, site(0, 0), sound, "1 to 16 ranks"),
        (vector, APART, site(2, 2), sound, "all_reduce of rank 2 of 2"),
        (Call { root: 2, ..call(Collective::Reduce, 1) }, APART, here, sound, "numbered from 0"),
        (call(Collective::Send, 1), APART, here, sound, "send it as messages"),
        (vector, at(1026, 4096), here, sound, "multiples of 4"),
        (vector, at(4096, 0), here, sound, "the output of all_reduce, 32 bytes, lies at 0x0"),
        (vector, at(u64::MAX - 3, 4096), here, sound, "the input"),
        (vector, at(4096, 4100), here, sound, "overlap by 28 bytes"),
        (all_gather, at(4096, 4080), here, sound, "overlap by 32 bytes"),
        (Call { counts: Some(uneven), ..exchange }, APART, here, sound, "send it as messages"),
        (vector, APART, Site { limit: Duration::ZERO, ..here }, sound, "give a limit"),
        (vector, APART, Site { boards: &[256, 128], ..here }, sound, "the board of rank 1 lies at 0x80"),
        (vector, APART, Site { status: 4, ..here }, sound, "multiples of 8 and 4"),
        (vector, APART, here, Tuning { threads: 48, ..sound }, "32, 64, ... 512"),
        (Call { count: usize::MAX / 2, ..vector }, APART, here, sound, "more than memory can hold"),
    ];
    for (call, data, site, tuning, says) in cases {
        let error = Plan::new(&call, data, &site, &tuning).expect_err(says);
        assert!(error.to_string().contains(says), "{error}");
    }
    let nothing = call(Collective::AllReduce, 0);
    assert!(Plan::new(&nothing, at(0, 0), &here, &sound).is_ok(), "where nothing lies is not asked");
}
