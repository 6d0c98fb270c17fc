//! Messages between devices, alone and in groups, and all_to_alls with blocks of different lengths.

use std::time::{Duration, Instant};

use paceline_comm::cuda::{DeviceBuffers, DeviceVec};
use paceline_comm::{Collective, Counts, DataType, ErrorKind, ReduceOp, Request};
use paceline_tests::{Random, is_asked_for, mix, seed};

use super::world::{PATIENCE, Rank, Way, is_there, ranks};

const WAYS: [Way; 2] = [Way::Host, Way::Direct];

/// Bytes: none, few, and up to many chunks of a slot.
const LENGTHS: [usize; 8] = [0, 1, 17, 1000, 4096, 4097, 60_001, 300_007];

fn content(of: u64, bytes: usize) -> Vec<u8> {
    let random = &mut Random::new(mix(of));
    let word = |_| random.next().to_le_bytes();
    (0..bytes.div_ceil(8)).flat_map(word).take(bytes).collect()
}

/// From, to, and bytes.
type Letter = (usize, usize, usize);

/// Groups in which every rank has some messages, to itself too.
fn rounds(n: usize, count: usize) -> Vec<Vec<Letter>> {
    let random = &mut Random::new(mix(seed() ^ n as u64));
    let mut letter = || {
        let bytes = LENGTHS[random.below(LENGTHS.len() as u64) as usize];
        (random.below(n as u64) as usize, random.below(n as u64) as usize, bytes)
    };
    (0..count).map(|round| (0..=round % 8).map(|_| letter()).collect()).collect()
}

/// This rank's part of a round, in an order of its own but between two ranks.
fn exchange(rank: &Rank, round: &[Letter], number: u64) {
    let me = rank.comm.rank();
    let of = |at: usize| number << 8 | at as u64;
    let mine = |end: fn(&Letter) -> usize| {
        round.iter().enumerate().filter(move |(_, letter)| end(letter) == me).map(|(at, letter)| (at, *letter))
    };
    let sent: Vec<_> = mine(|letter| letter.0)
        .map(|(at, (_, to, bytes))| (to, DeviceVec::of(&rank.device, &content(of(at), bytes)).unwrap()))
        .collect();
    let mut received: Vec<_> = mine(|letter| letter.1)
        .map(|(at, (from, _, bytes))| (at, from, DeviceVec::<u8>::zeroed(&rank.device, bytes).unwrap()))
        .collect();
    // Nobody allocates any more, which may wait for launches that wait for this rank.
    rank.comm.barrier().unwrap();
    {
        let on = rank.devices.on(&rank.stream);
        let mut group = on.group();
        let sends_first = (number + me as u64).is_multiple_of(2);
        let (mut sends, mut receives) = (sent.iter(), received.iter_mut());
        for turn in 0..2 {
            if (turn == 0) == sends_first {
                for (to, message) in sends.by_ref() {
                    group.send(message, *to).unwrap();
                }
            } else {
                for (_, from, message) in receives.by_ref() {
                    group.recv(message, *from).unwrap();
                }
            }
        }
        let work = group.run().unwrap();
        let way = if rank.devices.is_direct() { "on the device" } else { "by the host" };
        assert!(format!("{work:?}").contains(way), "{work:?}");
        work.wait().unwrap_or_else(|error| panic!("{error}: {round:?}"));
    }
    // Nor frees any.
    rank.comm.barrier().unwrap();
    for (at, from, message) in received {
        let want = content(of(at), message.len());
        assert!(message.to_vec().unwrap() == want, "round {number}, from {from} to {me}, {} bytes", want.len());
    }
}

#[test]
fn messages_go_between_devices() {
    if !is_there() {
        return;
    }
    for way in WAYS {
        ranks(2, way, |rank| {
            let peer = 1 - rank.comm.rank();
            let mine = DeviceVec::of(&rank.device, &vec![rank.comm.rank() as u32; 100_000]).unwrap();
            let mut theirs = DeviceVec::<u32>::zeroed(&rank.device, 100_000).unwrap();
            rank.devices.on(&rank.stream).send_recv(&mine, peer, &mut theirs, peer).unwrap().wait().unwrap();
            assert_eq!(theirs.to_vec().unwrap(), vec![peer as u32; 100_000]);
            if peer == 1 {
                rank.devices.on(&rank.stream).send(&mine, peer).unwrap().wait().unwrap();
            } else {
                rank.devices.on(&rank.stream).recv(&mut theirs, peer).unwrap().wait().unwrap();
                assert_eq!(theirs.to_vec().unwrap(), vec![0; 100_000]);
            }
        });
    }
}

#[test]
fn groups_of_messages_go_in_any_order() {
    if !is_there() {
        return;
    }
    let count = if is_asked_for("PACELINE_FULL") { 24 } else { 8 };
    for way in WAYS {
        for n in [1, 2, 3, 4] {
            let rounds = rounds(n, count);
            ranks(n, way, |rank| {
                for (number, round) in rounds.iter().enumerate() {
                    exchange(&rank, round, number as u64);
                }
                rank.devices.check().unwrap();
                rank.devices.detach().unwrap();
            });
        }
    }
}

/// Whoever comes first waits, and not the host.
#[test]
fn either_end_of_a_message_may_come_first() {
    if !is_there() {
        return;
    }
    for late in [0, 1] {
        ranks(2, Way::Direct, |rank| {
            let me = rank.comm.rank();
            let mine = DeviceVec::of(&rank.device, &content(7, 200_000)).unwrap();
            let mut theirs = DeviceVec::<u8>::zeroed(&rank.device, 200_000).unwrap();
            rank.comm.barrier().unwrap();
            if me == late {
                std::thread::sleep(Duration::from_millis(50));
            }
            let began = Instant::now();
            let on = rank.devices.on(&rank.stream);
            let work = if me == 0 { on.send(&mine, 1) } else { on.recv(&mut theirs, 0) }.unwrap();
            if me != late {
                assert!(!work.test().unwrap(), "the other end hasn't come after {:?}", began.elapsed());
            }
            work.wait().unwrap();
            assert!(me == 0 || theirs.to_vec().unwrap() == content(7, 200_000));
        });
    }
}

#[test]
fn messages_are_replayed_by_graphs() {
    if !is_there() {
        return;
    }
    for way in WAYS {
        ranks(2, way, |rank| {
            let (me, peer) = (rank.comm.rank(), 1 - rank.comm.rank());
            let len = 30_001;
            let mut mine = DeviceVec::<u8>::zeroed(&rank.device, len).unwrap();
            let mut theirs = DeviceVec::<u8>::zeroed(&rank.device, len).unwrap();
            let counts: [[usize; 2]; 2] = [[5, 100], [3, 7]];
            let send = counts[me];
            let recv = [counts[0][me], counts[1][me]];
            let input = DeviceVec::of(&rank.device, &vec![me as u32 + 1; send.iter().sum()]).unwrap();
            let mut output = DeviceVec::<u32>::zeroed(&rank.device, recv.iter().sum()).unwrap();
            let once = |mine: &DeviceVec<u8>, theirs: &mut DeviceVec<u8>, output: &mut DeviceVec<u32>| {
                let on = rank.devices.on(&rank.stream);
                let mut group = on.group();
                group.recv(theirs, peer).unwrap().send(mine, peer).unwrap();
                group.run().unwrap();
                on.all_to_all_v(&input, &send, output, &recv).unwrap()
            };
            once(&mine, &mut theirs, &mut output).wait().unwrap();
            rank.stream.begin_capture().unwrap();
            once(&mine, &mut theirs, &mut output);
            let mut graph = rank.stream.end_capture().unwrap();
            for turn in 1..=4u64 {
                mine.write(&content(2 * turn + me as u64, len)).unwrap();
                output.write(&vec![0; output.len()]).unwrap();
                rank.comm.barrier().unwrap();
                graph.launch(&rank.stream).unwrap();
                rank.stream.synchronize(Instant::now() + PATIENCE).unwrap();
                assert!(theirs.to_vec().unwrap() == content(2 * turn + peer as u64, len), "{way:?}, turn {turn}");
                let want: Vec<u32> = (0..2).flat_map(|from| vec![from as u32 + 1; recv[from]]).collect();
                assert_eq!(output.to_vec().unwrap(), want, "{way:?}, turn {turn}");
                // Other messages come between.
                once(&mine, &mut theirs, &mut output).wait().unwrap();
            }
            rank.devices.check().unwrap();
        });
    }
}

#[test]
fn another_length_is_an_error_that_names_both() {
    if !is_there() {
        return;
    }
    for way in WAYS {
        // A short one has left before anybody looks; a long one waits.
        for len in [100, 100_000] {
            ranks(2, way, |rank| {
                let me = rank.comm.rank();
                let mut vector = DeviceVec::of(&rank.device, &vec![1.0f32; len]).unwrap();
                rank.devices.on(&rank.stream).barrier().unwrap().wait().unwrap();
                let on = rank.devices.on(&rank.stream);
                let work = match me {
                    0 => on.send(&vector, 1).unwrap(),
                    _ => on.recv(&mut vector.slice_mut(0..len - 1), 0).unwrap(),
                };
                let ended = work.wait_timeout(PATIENCE);
                // Who has sent a short one learns of it with what it does next.
                let ended = ended.and_then(|()| {
                    assert_eq!(me, 0, "{way:?}: a shorter message was received");
                    rank.devices.on(&rank.stream).barrier().and_then(|work| work.wait_timeout(PATIENCE))
                });
                let error = ended.expect_err("the lengths differ");
                assert_eq!(error.kind(), ErrorKind::Mismatch, "{way:?}, rank {me}, {len}: {error}");
                if way == Way::Direct {
                    let (sent, expected) = (4 * len, 4 * (len - 1));
                    let said = format!("a message of {expected} bytes from rank 0, which sends one of {sent} bytes");
                    assert!(error.to_string().contains(&said), "rank {me}: {error}");
                }
                rank.stream.synchronize(Instant::now() + PATIENCE).unwrap();
            });
        }
    }
}

#[test]
fn what_a_group_can_not_do_is_refused() {
    if !is_there() {
        return;
    }
    for way in WAYS {
        ranks(2, way, |rank| {
            let vector = DeviceVec::of(&rank.device, &[1u8; 16]).unwrap();
            let on = rank.devices.on(&rank.stream);
            let mut group = on.group();
            group.send(&vector, rank.comm.rank()).unwrap();
            let error = group.run().unwrap_err();
            assert!(error.to_string().contains("has no partner"), "{way:?}: {error}");
            let mut group = on.group();
            group.send(&vector, 2).unwrap();
            let error = group.run().unwrap_err();
            assert!(error.to_string().contains("is not below the communicator's size"), "{way:?}: {error}");
            let group = on.group();
            assert!(group.is_empty());
            group.run().unwrap().wait().unwrap();
            if way == Way::Direct {
                let mut group = on.group();
                for _ in 0..129 {
                    group.send(&vector, 1 - rank.comm.rank()).unwrap();
                }
                let error = group.run().unwrap_err();
                assert!(error.to_string().contains("a group of 129 messages"), "{error}");
            }
            // Nothing has been begun.
            on.barrier().unwrap().wait().unwrap();
        });
    }
}

/// Blocks that move within their buffer: what comes would cover what still has to leave.
#[test]
fn uneven_blocks_are_exchanged_in_place() {
    if !is_there() {
        return;
    }
    for way in WAYS {
        for shifts in [false, true] {
            let elements = |from: usize, to: usize| match shifts {
                false => 3000 * (from + to + 1),
                true => 1000 * (from + 2 * to + 1),
            };
            ranks(3, way, |rank| {
                let me = rank.comm.rank();
                let block = |from: usize, to: usize| vec![(10 * from + to) as i32; elements(from, to)];
                let send: Vec<usize> = (0..3).map(|to| elements(me, to)).collect();
                let recv: Vec<usize> = (0..3).map(|from| elements(from, me)).collect();
                let mut before: Vec<i32> = (0..3).flat_map(|to| block(me, to)).collect();
                let want: Vec<i32> = (0..3).flat_map(|from| block(from, me)).collect();
                before.resize(before.len().max(want.len()), -1);
                let buffer = DeviceVec::of(&rank.device, &before).unwrap();
                let buffers = DeviceBuffers::InPlace((buffer.address(), 4 * buffer.len()));
                let counts = Counts { send_counts: &send, recv_counts: &recv, ..Counts::default() };
                let request = Request::new(Collective::AllToAll, DataType::I32, 0, buffers).counts(counts);
                // SAFETY: the memory lives until the call is over.
                let work = unsafe { rank.devices.on(&rank.stream).run(request) }.unwrap();
                assert_eq!(format!("{work:?}").contains("on the device"), way == Way::Direct, "{work:?}");
                work.wait().unwrap();
                assert_eq!(buffer.to_vec().unwrap()[..want.len()], want, "{way:?}, shifts {shifts}, rank {me}");
            });
        }
    }
}

/// Messages and collectives by turns, on two streams.
#[test]
fn messages_keep_their_place_among_collectives() {
    if !is_there() {
        return;
    }
    for way in WAYS {
        ranks(3, way, |rank| {
            let (me, n) = (rank.comm.rank(), 3);
            let (next, before) = ((me + 1) % n, (me + n - 1) % n);
            let other = rank.device.stream(paceline_comm::cuda::Priority::High).unwrap();
            let mut vector = DeviceVec::of(&rank.device, &[me as i64; 2000]).unwrap();
            let mut moved = DeviceVec::<i64>::zeroed(&rank.device, 2000).unwrap();
            for _ in 0..5 {
                rank.devices.on(&rank.stream).send_recv(&vector, next, &mut moved, before).unwrap();
                rank.devices.on(&other).all_reduce(&moved, &mut vector, ReduceOp::Sum).unwrap();
            }
            rank.devices.on(&rank.stream).barrier().unwrap().wait().unwrap();
            assert_eq!(vector.to_vec().unwrap(), [3 * 3i64.pow(4); 2000], "{way:?}");
        });
    }
}
