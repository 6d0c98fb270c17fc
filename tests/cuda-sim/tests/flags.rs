//! Launches that only tell and wait, on ranks that are threads: what they wait for, and how their waits end.

use std::time::Duration;

use paceline_comm::device::{Board, FlagsPlan, Kernel, Reason, Signals, Waiting};
use paceline_cuda_sim::host::Host;
use paceline_cuda_sim::world::World;

const DIGEST: u32 = 0x1234_5678;

fn host() -> Option<&'static Host> {
    Host::messages().map_err(|reason| println!("skipped: {reason}")).ok()
}

fn board() -> Board {
    Board::new(4 * 384, 2).expect("a board")
}

fn launch(host: &Host, world: &World, rank: usize, signals: &Signals, meets: bool) {
    let plan = FlagsPlan::new(signals, meets, DIGEST, &world.site(rank)).expect("a launch");
    // SAFETY: the boards are the world's, which outlives the launch.
    let misaligned = unsafe { host.launch(Kernel::Flags, &plan.arguments, FlagsPlan::GRID) };
    assert_eq!(misaligned, 0);
}

fn at(rank: usize, number: u32) -> [u32; Board::RANKS_MAX] {
    std::array::from_fn(|other| if other == rank { number } else { 0 })
}

/// Rank 0 puts messages, which rank 1 takes; each waits for the other before the next. Call after call, also where the numbers
/// of steps begin again.
#[test]
fn what_is_told_is_waited_for_in_every_call_anew() {
    let Some(host) = host() else { return };
    for step in [0, u32::MAX - 4] {
        let world = World::at_step(host, 2, board(), step);
        let order = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for rank in 0..2 {
                let (world, order) = (&world, &order);
                scope.spawn(move || {
                    for call in 0..5 {
                        launch(host, world, rank, &Signals::default(), true);
                        for number in 1..4 {
                            let now = 100 * call + number;
                            if rank == 0 {
                                order.store(now, std::sync::atomic::Ordering::Relaxed);
                                let puts = at(1, number);
                                launch(
                                    host,
                                    world,
                                    0,
                                    &Signals { puts, awaited_takes: puts, ..Signals::default() },
                                    false,
                                );
                            } else {
                                let awaited_puts = at(0, number);
                                launch(host, world, 1, &Signals { awaited_puts, ..Signals::default() }, false);
                                assert_eq!(order.load(std::sync::atomic::Ordering::Relaxed), now, "call {call}");
                                launch(host, world, 1, &Signals { takes: awaited_puts, ..Signals::default() }, false);
                            }
                        }
                        launch(host, world, rank, &Signals::default(), true);
                    }
                });
            }
        });
        for rank in 0..2 {
            assert_eq!((world.failure(rank), world.step(rank)), (None, step.wrapping_add(10)));
        }
        assert_eq!(world.filled(1, 0), u64::from(step.wrapping_add(9)) << 32 | 3, "the third of the last call");
        world.check_guards();
    }
}

/// A rank waits alone for `signals` within a call; what its record says.
fn failure(host: &'static Host, signals: Signals, aborts: bool) -> paceline_comm::device::Failure {
    let mut world = World::new(host, 2, board());
    world.limit = Duration::from_millis(if aborts { 60_000 } else { 20 });
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let world = &world;
            scope.spawn(move || launch(host, world, rank, &Signals::default(), true));
        }
    });
    std::thread::scope(|scope| {
        let world = &world;
        scope.spawn(move || launch(host, world, 1, &signals, false));
        if aborts {
            std::thread::sleep(Duration::from_millis(20));
            world.abort(1);
        }
    });
    let failure = world.failure(1).expect("nobody came");
    // What comes after it tells nothing and waits for nothing.
    launch(host, &world, 1, &Signals { puts: at(0, 7), ..signals }, true);
    assert_eq!((world.step(1), world.failure(1).expect("the first stays")), (1, failure));
    assert_eq!(world.filled(0, 1), 0, "it has told something");
    failure
}

#[test]
fn who_puts_or_takes_nothing_is_named() {
    let Some(host) = host() else { return };
    let put = failure(host, Signals { awaited_puts: at(0, 3), ..Signals::default() }, false);
    assert_eq!((put.reason, put.peer, put.waiting), (Reason::TimedOut, 0, Waiting::Put(3)));
    assert_eq!(put.digests.0, DIGEST, "the call is known");
    let taken = failure(host, Signals { awaited_takes: at(0, 9), ..Signals::default() }, true);
    assert_eq!((taken.reason, taken.peer, taken.waiting), (Reason::Aborted, 0, Waiting::Taken(9)));
    assert!(taken.to_string().contains("for rank 0 to take message 9 of the call"), "{taken}");
}

#[test]
fn another_call_is_found_at_the_first_meeting() {
    let Some(host) = host() else { return };
    let world = World::new(host, 2, board());
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let world = &world;
            scope.spawn(move || {
                let digest = DIGEST + rank as u32;
                let plan = FlagsPlan::new(&Signals::default(), true, digest, &world.site(rank)).expect("a launch");
                // SAFETY: the boards are the world's, which outlives the launch.
                unsafe { host.launch(Kernel::Flags, &plan.arguments, FlagsPlan::GRID) };
            });
        }
    });
    for rank in 0..2 {
        let failure = world.failure(rank).expect("they differ");
        assert_eq!((failure.reason, failure.peer), (Reason::Mismatch, 1 - rank));
    }
}
