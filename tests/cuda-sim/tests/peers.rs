//! Collectives over boards: ranks as threads, every kernel of theirs, bit for bit, with everything that may go wrong.

use std::time::{Duration, Instant};

use paceline_comm::device::{Board, Data, Reason, Tuning};
use paceline_comm::{Collective, DataType, ReduceOp};
use paceline_cuda_sim::host::Host;
use paceline_cuda_sim::world::{Case, Lends, World};
use paceline_cuda_sim::{LENT, OPERATORS};
use paceline_tests::{Random, is_asked_for, seed};

/// All that are no messages.
fn collectives() -> Vec<Collective> {
    Collective::ALL.into_iter().filter(|collective| !collective.is_message()).collect()
}

const RANKS: [usize; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 16];
/// Elements: none, few, and up to several steps of the small boards here.
const COUNTS: [usize; 6] = [0, 1, 7, 61, 257, 1031];

/// The kernels, or a line that says why not.
fn host() -> Option<&'static Host> {
    Host::collectives().map_err(|reason| println!("skipped: {reason}")).ok()
}

/// Cells so small that even a few hundred bytes take several steps.
fn small_board() -> Board {
    Board::new(3 * 2 * 384, 3).expect("a board")
}

fn tuning(random: &mut Random) -> Tuning {
    let one_shot_bytes = [None, Some(0), Some(u64::MAX)][random.below(3) as usize];
    Tuning { blocks: 1 + random.below(3) as u32, threads: 32, one_shot_bytes }
}

/// A collective with all that is left open drawn.
fn case(random: &mut Random, ranks: usize, collective: Collective, data_type: DataType, op: ReduceOp) -> Case {
    // An uneven all_to_all is messages.
    let has_uneven = collective.has_blocks() && collective != Collective::AllToAll;
    let uneven = has_uneven && random.below(3) == 0;
    let in_place = random.below(3) == 0;
    Case {
        collective,
        data_type,
        op,
        root: random.below(ranks as u64) as usize,
        count: COUNTS[random.below(COUNTS.len() as u64) as usize],
        uneven,
        in_place,
        anywhere: random.below(2) == 0,
        tuning: tuning(random),
        times: 1,
        lends: Lends::No,
        seed: random.next(),
    }
}

fn random_case(random: &mut Random, ranks: usize) -> Case {
    let collective = collectives()[random.below(9) as usize];
    let data_type = DataType::ALL[random.below(12) as usize];
    let op = OPERATORS[random.below(6) as usize];
    case(random, ranks, collective, data_type, op)
}

/// Every collective with every element type and operator, in one shot and two.
#[test]
fn every_collective_type_and_operator() {
    let Some(host) = host() else { return };
    for ranks in RANKS {
        let random = &mut Random::new(seed() ^ ranks as u64);
        let world = World::new(host, ranks, small_board());
        let mut cases = Vec::new();
        for collective in collectives() {
            for data_type in DataType::ALL {
                let operators = if collective.reduces() { &OPERATORS[..] } else { &OPERATORS[..1] };
                for op in operators {
                    let shots: &[Option<u64>] = match collective {
                        Collective::AllReduce | Collective::Reduce | Collective::Broadcast => {
                            &[Some(0), Some(u64::MAX)]
                        }
                        _ => &[None],
                    };
                    for one_shot_bytes in shots {
                        let mut case = case(random, ranks, collective, data_type, *op);
                        case.tuning.one_shot_bytes = *one_shot_bytes;
                        cases.push(case);
                    }
                }
            }
        }
        world.run(&cases);
    }
}

/// Every count, from none to several steps, in place and not, aligned and not.
#[test]
fn every_count() {
    let Some(host) = host() else { return };
    for ranks in [1, 2, 3, 8] {
        let random = &mut Random::new(seed() ^ ranks as u64);
        let world = World::new(host, ranks, small_board());
        let mut cases = Vec::new();
        for collective in collectives() {
            for data_type in [DataType::U8, DataType::Bf16, DataType::F32, DataType::F64] {
                // Around packs, and around the cells and shares of one block and of three.
                let around = [16, 128, 384, 3 * 384, 5 * 384].map(|bytes| bytes / data_type.size());
                let counts = around.into_iter().flat_map(|count| [count - 1, count, count + 1]).chain(COUNTS);
                for count in counts {
                    let case = case(random, ranks, collective, data_type, ReduceOp::Sum);
                    cases.push(Case { count, ..case });
                }
            }
        }
        world.run(&cases);
    }
}

/// Arrays that all ranks have lent are read where they lie; if one rank has not, all go by the cells: with every operator, in
/// place and not, aligned and not, among launches of the other kernels.
#[test]
fn lent_arrays_are_read_where_they_lie() {
    let Some(host) = host() else { return };
    let lending = [Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather, Collective::AllToAll];
    for ranks in [1, 2, 3, 4, 8] {
        let random = &mut Random::new(seed() ^ ranks as u64);
        let world = World::new(host, ranks, small_board());
        let mut cases = Vec::new();
        for collective in lending {
            for data_type in LENT {
                let operators = if collective.reduces() { &OPERATORS[..] } else { &OPERATORS[..1] };
                for op in operators {
                    for lends in [Lends::All, Lends::AllBut(random.below(ranks as u64) as usize)] {
                        let case = case(random, ranks, collective, data_type, *op);
                        cases.push(Case { uneven: false, lends, ..case });
                        if random.below(3) == 0 {
                            cases.push(random_case(random, ranks));
                        }
                    }
                }
            }
        }
        world.run(&cases);
        for rank in 0..ranks {
            assert_eq!(world.step(rank), world.step(0), "all ranks have come equally far");
        }
    }
}

/// A rank's output, or another's input, that changes too early would be seen.
#[test]
fn lent_arrays_are_read_again_and_again() {
    let Some(host) = host() else { return };
    for ranks in [2, 3, 4] {
        let random = &mut Random::new(seed() ^ ranks as u64);
        let world = World::new(host, ranks, small_board());
        let cases: Vec<Case> = (0..150)
            .map(|number| {
                let collective = [Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather][number % 3];
                let case = case(random, ranks, collective, DataType::I64, ReduceOp::Sum);
                Case { uneven: false, count: 1031, lends: Lends::All, in_place: number % 2 == 0, ..case }
            })
            .collect();
        world.run(&cases);
    }
}

/// Vectors and blocks that take several steps of many blocks with all the threads that a block may have.
#[test]
fn long_ones_as_they_are_launched_by_default() {
    let Some(host) = host() else { return };
    let random = &mut Random::new(seed());
    let world = World::new(host, 3, Board::new(1 << 20, 16).expect("a board"));
    let cases: Vec<Case> = collectives()
        .into_iter()
        .map(|collective| {
            let case = case(random, 3, collective, DataType::F32, ReduceOp::Sum);
            Case { count: 200_003, tuning: Tuning::default(), ..case }
        })
        .collect();
    world.run(&cases);
}

/// Many launches one after the other, of different collectives, lengths and grids; ranks come early and late.
#[test]
fn launches_follow_each_other() {
    let Some(host) = host() else { return };
    let launches = if is_asked_for("PACELINE_FULL") { 20_000 } else { 600 };
    for ranks in [2, 3, 4, 8] {
        let random = &mut Random::new(seed() ^ ranks as u64);
        // Just before the step numbers begin again.
        let world = World::at_step(host, ranks, small_board(), u32::MAX - 500);
        let cases: Vec<Case> = (0..launches).map(|_| random_case(random, ranks)).collect();
        world.run(&cases);
        assert!(world.step(0) < 1 << 31, "the step numbers have begun again");
        for rank in 0..ranks {
            assert_eq!(world.step(rank), world.step(0), "all ranks have come equally far");
        }
    }
}

/// The same launches many times, as a captured graph replays them.
#[test]
fn launches_are_replayed() {
    let Some(host) = host() else { return };
    let random = &mut Random::new(seed());
    let world = World::new(host, 4, small_board());
    let cases: Vec<Case> = (0..20).map(|_| Case { in_place: false, times: 30, ..random_case(random, 4) }).collect();
    world.run(&cases);
}

/// A plan of the same all_reduce for each rank, with arrays of this thread's.
fn plans(world: &World, ranks: usize, counts: &[usize]) -> (Vec<Vec<u64>>, Vec<paceline_comm::device::Plan>) {
    let arrays: Vec<Vec<u64>> = (0..ranks).map(|_| vec![0; 1000]).collect();
    let plans = (0..ranks)
        .map(|rank| {
            let case = Case {
                collective: Collective::AllReduce,
                data_type: DataType::I64,
                op: ReduceOp::Sum,
                root: 0,
                count: counts[rank],
                uneven: false,
                in_place: true,
                anywhere: false,
                tuning: Tuning { blocks: 3, threads: 32, one_shot_bytes: None },
                times: 1,
                lends: Lends::No,
                seed: 0,
            };
            let at = arrays[rank].as_ptr() as u64;
            case.plan(&world.site(rank), &case.inputs(ranks), Data { input: at, output: at })
        })
        .collect();
    (arrays, plans)
}

/// A rank never launches: all others end in time, and say who it is; what they launch later ends at once.
#[test]
fn a_rank_that_does_not_come_is_named() {
    let Some(host) = host() else { return };
    for missing in [0, 2] {
        let mut world = World::new(host, 4, small_board());
        world.limit = Duration::from_millis(300);
        let (_arrays, plans) = plans(&world, 4, &[900; 4]);
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for (_, plan) in plans.iter().enumerate().filter(|(rank, _)| *rank != missing) {
                scope.spawn(|| world.launch(plan));
            }
        });
        let took = begun.elapsed();
        assert!(world.limit <= took && took < Duration::from_secs(20), "{took:?}");
        for rank in (0..4).filter(|rank| *rank != missing) {
            let failure = world.failure(rank).expect("the launch has failed");
            assert_eq!((failure.reason, failure.peer), (Reason::TimedOut, missing), "rank {rank}: {failure}");
            assert_eq!((failure.block, failure.step, failure.seen_step), (0, 1, 0), "rank {rank}: {failure}");
            assert!(world.limit <= failure.waited, "{failure}");
            // Nobody waits again, and the first failure stays the one that is told.
            let again = Instant::now();
            world.launch(&plans[rank]);
            assert!(again.elapsed() < world.limit, "a launch after a failure waits: {:?}", again.elapsed());
            assert_eq!(world.failure(rank), Some(failure));
        }
        assert_eq!(world.failure(missing), None);
    }
}

/// The abort word ends a launch that waits.
#[test]
fn a_launch_is_aborted() {
    let Some(host) = host() else { return };
    let world = World::new(host, 2, small_board());
    let (_arrays, plans) = plans(&world, 2, &[10; 2]);
    std::thread::scope(|scope| {
        scope.spawn(|| world.launch(&plans[0]));
        std::thread::sleep(Duration::from_millis(5));
        world.abort(0);
    });
    let failure = world.failure(0).expect("the launch has failed");
    assert_eq!((failure.reason, failure.peer), (Reason::Aborted, 1), "{failure}");
    assert!(failure.waited < world.limit, "{failure}");
}

/// Ranks call different things: each says who.
#[test]
fn a_mismatch_is_seen_by_all() {
    let Some(host) = host() else { return };
    // One differs from all; two pairs differ; so much that the grids differ.
    for counts in [[900, 900, 901], [10, 10, 11], [10, 900, 900], [10, 900, 500]] {
        let world = World::new(host, 3, small_board());
        let (_arrays, plans) = plans(&world, 3, &counts);
        std::thread::scope(|scope| {
            for plan in &plans {
                scope.spawn(|| world.launch(plan));
            }
        });
        for rank in 0..3 {
            let failure = world.failure(rank).expect("the launch has failed");
            assert_eq!(failure.reason, Reason::Mismatch, "{counts:?}, rank {rank}: {failure}");
            assert_ne!(counts[failure.peer], counts[rank], "{counts:?}, rank {rank}: {failure}");
            assert_ne!(failure.digests.0, failure.digests.1, "{failure}");
            assert_eq!((failure.block, failure.step, failure.seen_step), (0, 1, 1), "{failure}");
        }
    }
}

/// Two peers call something else: the record is that of the one that was seen first, and nothing is mixed.
#[test]
fn the_first_failure_is_told() {
    let Some(host) = host() else { return };
    let world = World::new(host, 3, small_board());
    let (_arrays, plans) = plans(&world, 3, &[10; 3]);
    world.say(0, 0, 1, 1, 0x1111);
    world.say(0, 0, 2, 1, 0x2222);
    world.launch(&plans[0]);
    let failure = world.failure(0).expect("the launch has failed");
    assert_eq!((failure.reason, failure.peer, failure.digests.1), (Reason::Mismatch, 1, 0x1111), "{failure}");
}

/// A peer whose flag is of a step long ago, or of one that can't be yet, has not come.
#[test]
fn only_the_flags_of_this_step_and_the_next_count() {
    let Some(host) = host() else { return };
    for (before, said) in
        [(7, 7), (7, 10), (7, 0), (7, u32::MAX), (u32::MAX - 1, 1), (u32::MAX, u32::MAX), (1 << 31, 1)]
    {
        let mut world = World::at_step(host, 2, small_board(), before);
        world.limit = Duration::from_millis(1);
        let (_arrays, plans) = plans(&world, 2, &[10; 2]);
        world.say(0, 0, 1, said, 0);
        world.launch(&plans[0]);
        let failure = world.failure(0).expect("the launch has failed");
        assert_eq!((failure.reason, failure.seen_step), (Reason::TimedOut, said), "{before}: {failure}");
    }
    for before in [7, u32::MAX - 1, u32::MAX] {
        let world = World::at_step(host, 2, small_board(), before);
        let (_arrays, plans) = plans(&world, 2, &[10; 2]);
        world.say(0, 0, 1, before.wrapping_add(2), 0);
        world.launch(&plans[0]);
        assert_eq!(world.failure(0), None, "the peer has passed step {}", before.wrapping_add(1));
        assert_eq!(world.step(0), before.wrapping_add(1));
    }
}
