//! Messages over boards: ranks as threads, groups in any order, every length, with everything that may go wrong.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use paceline_comm::device::{Board, Direction, MailPlan, Message, MessageKind, Reason, Tuning, Waiting};
use paceline_cuda_sim::host::Host;
use paceline_cuda_sim::room::Room;
use paceline_cuda_sim::world::{EndOthers, World, linger};
use paceline_tests::{Random, is_asked_for, mix, seed};

/// The kernels, or a line that says why not.
fn host() -> Option<&'static Host> {
    Host::messages().map_err(|reason| println!("skipped: {reason}")).ok()
}

/// Slots so small that even a few hundred bytes are many chunks.
fn small_board() -> Board {
    Board::new(3 * 2 * 384, 3).expect("a board")
}

const TUNING: Tuning = Tuning { blocks: 3, threads: 32, one_shot_bytes: None };

/// A message, and when it goes.
#[derive(Clone, Copy, Debug)]
struct Letter {
    from: usize,
    to: usize,
    bytes: usize,
    seed: u64,
}

impl Letter {
    fn content(&self) -> Vec<u8> {
        let random = &mut Random::new(mix(self.seed));
        (0..self.bytes).map(|_| random.next() as u8).collect()
    }
}

/// Messages that go at a time: each rank has one launch for its own.
type Round = Vec<Letter>;

fn letter(random: &mut Random, ranks: usize) -> Letter {
    let lengths = [0, 1, 15, 16, 17, 100, 512, 513, 1536, 1537, 5000, 20_011];
    // Many ranks have slots of one pack.
    let lengths = if ranks > 4 { &lengths[..10] } else { &lengths[..] };
    let from = random.below(ranks as u64) as usize;
    let to = (from + 1 + random.below(ranks as u64 - 1) as usize) % ranks;
    Letter { from, to, bytes: lengths[random.below(lengths.len() as u64) as usize], seed: random.next() }
}

/// What a rank has of a round: a plan, and rooms of what is sent and of what comes.
struct Part {
    plan: MailPlan,
    sent: Vec<(Room, Vec<u8>)>,
    received: Vec<(Room, Vec<u8>)>,
}

fn part(world: &World, rank: usize, round: &Round, random: &mut Random, kind: MessageKind) -> Part {
    let (mut sent, mut received, mut messages) = (Vec::new(), Vec::new(), Vec::new());
    for letter in round.iter().filter(|letter| letter.from == rank || letter.to == rank) {
        let content = letter.content();
        let start = random.below(20) as usize;
        let (direction, peer, mut room, list) = match letter.from == rank {
            true => (Direction::Sent, letter.to, Room::new(start, &content), &mut sent),
            false => (Direction::Received, letter.from, Room::new(start, &vec![0x77; content.len()]), &mut received),
        };
        messages.push(Message { direction, peer, address: room.address(), bytes: letter.bytes as u64 });
        list.push((room, content));
    }
    // Messages between the same two ranks keep their order; all others are named in any.
    let mut keyed: Vec<_> = messages.into_iter().collect();
    let keys: Vec<u64> = (0..64).map(|_| random.next()).collect();
    keyed.sort_by_key(|it| keys[2 * it.peer + usize::from(it.direction == Direction::Sent)]);
    let plan = MailPlan::new(&keyed, kind, false, &world.site(rank), &TUNING).expect("a plan");
    Part { plan, sent, received }
}

/// Runs rounds, each `times` times, and checks all that may have been written.
fn run(world: &World, rounds: &[Round], times: usize) {
    std::thread::scope(|scope| {
        for rank in 0..world.ranks() {
            scope.spawn(move || {
                let _others = EndOthers(world);
                let random = &mut Random::new(mix(seed() ^ rank as u64));
                for (number, round) in rounds.iter().enumerate() {
                    if round.iter().all(|letter| letter.from != rank && letter.to != rank) {
                        continue;
                    }
                    let mut part = part(world, rank, round, random, MessageKind::Single);
                    for time in 0..times {
                        linger(random);
                        world.launch_mail(&part.plan);
                        let what = format!("rank {rank}, round {number}, launch {time}");
                        let failure = world.failure(rank);
                        assert!(failure.is_none(), "{what}: {}: {round:?}", failure.expect("a failure"));
                        for (room, content) in &mut part.received {
                            room.check(1, content, &what);
                        }
                        for (room, content) in &mut part.sent {
                            room.check(1, content, &format!("{what}: what is sent"));
                        }
                    }
                }
            });
        }
    });
    world.check_guards();
}

fn rounds(random: &mut Random, ranks: usize, n: usize) -> Vec<Round> {
    (0..n).map(|_| (0..1 + random.below(12)).map(|_| letter(random, ranks)).collect()).collect()
}

#[test]
fn messages_arrive_in_groups_of_any_order() {
    let Some(host) = host() else { return };
    let times = if is_asked_for("PACELINE_FULL") { 30 } else { 1 };
    for (ranks, n) in [(2, 60 * times), (3, 30 * times), (4, 20 * times), (8, 8 * times), (16, 3 * times)] {
        let random = &mut Random::new(seed() ^ ranks as u64);
        let world = World::new(host, ranks, small_board());
        run(&world, &rounds(random, ranks, n), 1);
    }
}

#[test]
fn messages_are_replayed() {
    let Some(host) = host() else { return };
    let random = &mut Random::new(seed());
    let world = World::new(host, 3, small_board());
    run(&world, &rounds(random, 3, 10), 8);
}

#[test]
fn numbers_of_chunks_begin_again() {
    let Some(host) = host() else { return };
    for gone in [(1 << 20) - 7, u32::MAX - 6] {
        let random = &mut Random::new(seed() ^ u64::from(gone));
        let world = World::at_chunk(host, 2, small_board(), gone);
        run(&world, &rounds(random, 2, 60), 1);
    }
}

#[test]
fn long_messages_go_as_they_are_launched_by_default() {
    let Some(host) = host() else { return };
    let board = Board::new(1 << 20, 64).expect("a board");
    let world = World::new(host, 2, board);
    let content: Vec<u8> = (0..3_000_001u32).map(|at| (at * 7 / 5) as u8).collect();
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (world, content) = (&world, &content);
            scope.spawn(move || {
                let mut target = Room::new(1, &vec![0; content.len()]);
                let bytes = content.len() as u64;
                let (address, direction) = match rank {
                    0 => (content.as_ptr() as u64, Direction::Sent),
                    _ => (target.address(), Direction::Received),
                };
                let message = Message { direction, peer: 1 - rank, address, bytes };
                let tuning = Tuning::default();
                let plan = MailPlan::new(&[message], MessageKind::Single, false, &world.site(rank), &tuning);
                let plan = plan.expect("a plan");
                assert_eq!(plan.grid.blocks, 32);
                world.launch_mail(&plan);
                assert!(world.failure(rank).is_none());
                if rank == 1 {
                    target.check(1, content, "a long message");
                }
            });
        }
    });
}

/// Short messages don't wait for who takes them: they lie in slots until then.
#[test]
fn a_short_message_is_sent_before_it_is_received() {
    let Some(host) = host() else { return };
    let world = World::new(host, 2, small_board());
    let random = &mut Random::new(seed());
    let round = vec![Letter { from: 0, to: 1, bytes: 30, seed: 1 }];
    let first = part(&world, 0, &round, random, MessageKind::Single);
    world.launch_mail(&first.plan);
    world.launch_mail(&first.plan);
    let mut second = part(&world, 1, &round, random, MessageKind::Single);
    for _ in 0..2 {
        world.launch_mail(&second.plan);
        assert!(world.failure(1).is_none());
        let (room, content) = &mut second.received[0];
        room.check(1, content, "a short message");
    }
}

/// Blocks of an all_to_all in place: what comes must not cover what still has to leave.
#[test]
fn blocks_are_exchanged_in_place() {
    let Some(host) = host() else { return };
    for (ranks, bytes) in [(2, 20_000), (3, 4000), (5, 777)] {
        let world = World::new(host, ranks, small_board());
        let content = |from: usize, to: usize| Letter { from, to, bytes, seed: (from * 100 + to) as u64 }.content();
        std::thread::scope(|scope| {
            for rank in 0..ranks {
                let (world, content) = (&world, &content);
                scope.spawn(move || {
                    let _others = EndOthers(world);
                    let random = &mut Random::new(rank as u64);
                    let before: Vec<u8> = (0..ranks).flat_map(|to| content(rank, to)).collect();
                    let want: Vec<u8> = (0..ranks).flat_map(|from| content(from, rank)).collect();
                    let mut room = Room::new(rank, &before);
                    let messages: Vec<Message> = (0..ranks)
                        .filter(|peer| *peer != rank)
                        .flat_map(|peer| {
                            let address = room.address() + (peer * bytes) as u64;
                            [Direction::Sent, Direction::Received].map(|direction| Message {
                                direction,
                                peer,
                                address,
                                bytes: bytes as u64,
                            })
                        })
                        .collect();
                    let plan = MailPlan::new(&messages, MessageKind::Block, true, &world.site(rank), &TUNING);
                    let plan = plan.expect("a plan");
                    linger(random);
                    world.launch_mail(&plan);
                    assert!(world.failure(rank).is_none(), "{}", world.failure(rank).expect("a failure"));
                    room.check(1, &want, &format!("rank {rank} of {ranks}"));
                });
            }
        });
    }
}

/// A peer that sends and takes nothing: what it sends may not cover what still has to leave. The peer is this test.
#[test]
fn a_block_in_place_is_not_covered_before_it_has_left() {
    let Some(host) = host() else { return };
    let world = World::new(host, 2, small_board());
    let mut room = Room::new(0, &[7; 500]);
    let messages = [Direction::Sent, Direction::Received].map(|direction| Message {
        direction,
        peer: 1,
        address: room.address(),
        bytes: 500,
    });
    let plan = MailPlan::new(&messages, MessageKind::Block, true, &world.site(0), &TUNING).expect("a plan");
    let post = |chunk: u64| {
        let flag = chunk << 44 | (MessageKind::Block as u64) << 40 | 500;
        world.mail_flag(0, 1, Some((chunk as usize - 1) % 2)).store(flag, Ordering::Release);
    };
    let taken = |chunks: u64| {
        let deadline = Instant::now() + Duration::from_secs(20);
        while world.mail_flag(1, 0, None).load(Ordering::Acquire) < chunks && Instant::now() < deadline {
            std::thread::yield_now();
        }
        // Long enough for one chunk more, if it could be.
        std::thread::sleep(Duration::from_millis(20));
        world.mail_flag(1, 0, None).load(Ordering::Acquire)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| world.launch_mail(&plan));
        post(1);
        post(2);
        let first = taken(2);
        post(3);
        let without_room = taken(2);
        world.mail_flag(0, 1, None).store(1, Ordering::Release);
        let with_room = taken(3);
        world.abort(0);
        assert_eq!((first, without_room, with_room), (2, 2, 3));
    });
}

#[test]
fn another_length_and_another_kind_are_told_to_the_receiver() {
    let Some(host) = host() else { return };
    for (bytes, kind, reason) in [
        (400, MessageKind::Single, Reason::OtherLength(400)),
        (0, MessageKind::Single, Reason::OtherLength(0)),
        (396, MessageKind::Block, Reason::Mismatch),
    ] {
        let world = World::new(host, 2, small_board());
        let random = &mut Random::new(seed());
        let sends = vec![Letter { from: 0, to: 1, bytes, seed: 1 }];
        let receives = vec![Letter { from: 0, to: 1, bytes: 396, seed: 1 }];
        let (sender, receiver) =
            (part(&world, 0, &sends, random, kind), part(&world, 1, &receives, random, MessageKind::Single));
        std::thread::scope(|scope| {
            scope.spawn(|| world.launch_mail(&sender.plan));
            world.launch_mail(&receiver.plan);
            // As the host does that hears of it.
            world.abort(0);
        });
        let failure = world.failure(1).expect("the lengths differ");
        assert_eq!((failure.reason, failure.peer), (reason, 0), "{failure}");
        assert_eq!(failure.waiting, Waiting::Receiving(396), "{failure}");
        let sender = world.failure(0).map(|failure| (failure.reason, failure.waiting));
        assert!(sender.is_none() || sender == Some((Reason::Aborted, Waiting::Sending)), "{sender:?}");
    }
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    let Some(host) = host() else { return };
    for (from, to) in [(1, 0), (0, 1)] {
        let mut world = World::new(host, 3, small_board());
        world.limit = Duration::from_millis(200);
        // What goes between the two that come arrives all the same.
        let round = vec![
            Letter { from, to, bytes: 5000, seed: 1 },
            // In one block: here blocks run one after the other.
            Letter { from: 0, to: 2, bytes: 500, seed: 2 },
            Letter { from: 2, to: 0, bytes: 500, seed: 3 },
        ];
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for rank in [0, 2] {
                let (world, round) = (&world, &round);
                scope.spawn(move || {
                    let random = &mut Random::new(seed());
                    let mut part = part(world, rank, round, random, MessageKind::Single);
                    world.launch_mail(&part.plan);
                    if rank == 2 {
                        assert!(world.failure(2).is_none());
                        let (room, content) = &mut part.received[0];
                        room.check(1, content, "from a rank that waits in vain for another");
                    }
                });
            }
        });
        assert!(world.limit <= begun.elapsed() && begun.elapsed() < Duration::from_secs(20));
        let failure = world.failure(0).expect("the launch has failed");
        let waiting = if from == 0 { Waiting::Sending } else { Waiting::Receiving(5000) };
        assert_eq!((failure.reason, failure.peer, failure.waiting), (Reason::TimedOut, 1, waiting), "{failure}");
    }
}

#[test]
fn a_launch_is_aborted() {
    let Some(host) = host() else { return };
    for (from, to) in [(1, 0), (0, 1)] {
        let world = World::new(host, 2, small_board());
        let round = vec![Letter { from, to, bytes: 5000, seed: 1 }];
        let part = part(&world, 0, &round, &mut Random::new(seed()), MessageKind::Single);
        std::thread::scope(|scope| {
            scope.spawn(|| world.launch_mail(&part.plan));
            std::thread::sleep(Duration::from_millis(5));
            world.abort(0);
        });
        let failure = world.failure(0).expect("the launch has failed");
        assert_eq!((failure.reason, failure.peer), (Reason::Aborted, 1), "{failure}");
        world.launch_mail(&part.plan);
        assert_eq!(world.failure(0), Some(failure), "later launches end at once");
    }
}

/// Collectives between messages, and messages between collectives, disturb each other in nothing.
#[test]
fn messages_lie_while_collectives_run() {
    use paceline_comm::device::{Call, Data, Plan};
    use paceline_comm::{Collective, DataType, ReduceOp};
    let Some(host) = host() else { return };
    let world = World::new(host, 2, small_board());
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let world = &world;
            scope.spawn(move || {
                let _others = EndOthers(world);
                let random = &mut Random::new(rank as u64);
                let vector = [rank as u64 + 1; 300];
                let total = [0u64; 300];
                let call = Call {
                    collective: Collective::AllReduce,
                    data_type: DataType::U64,
                    op: ReduceOp::Sum,
                    root: 0,
                    count: 300,
                    counts: None,
                };
                let data = Data { input: vector.as_ptr() as u64, output: total.as_ptr() as u64 };
                let plan = Plan::new(&call, data, &world.site(rank), &TUNING).expect("a plan");
                for turn in 0..50 {
                    let round = vec![Letter { from: 0, to: 1, bytes: 30, seed: turn }];
                    let mut part = part(world, rank, &round, random, MessageKind::Single);
                    if rank == 0 {
                        world.launch_mail(&part.plan);
                    }
                    world.launch(&plan);
                    if rank == 1 {
                        world.launch_mail(&part.plan);
                        let (room, content) = &mut part.received[0];
                        room.check(1, content, "a message sent before a collective and received after it");
                    }
                    assert_eq!(std::hint::black_box(&total), &[3; 300]);
                    assert!(world.failure(rank).is_none());
                }
            });
        }
    });
    world.check_guards();
}
