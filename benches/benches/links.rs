//! Links between two ranks: round trips of 8 B, messages of 1 MiB, and turns of the board.
//!
//! The ranks are two threads, whatever joins them, so that each kind of link is used as between processes. Each call of a
//! measurement begins with one round trip that is not timed, so that both threads run.

#![allow(missing_docs, reason = "what the macros of criterion make has none")]
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use paceline_transport::rendezvous::Hub;
use paceline_transport::{Channel, Endpoint, Fabric, Heading, LinkKind, Rendezvous, Setup, Stamp, endpoint};

const SHORT: usize = 8;
const LONG: usize = 1 << 20;
const CHANNEL: Channel = Channel(1);
const STAMP: Stamp = Stamp([1, 2]);
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a rank looks before it lets others run: it may share its core.
const LOOKS: u32 = 10_000;

/// Two ranks joined by one kind of link.
fn pair(kind: LinkKind) -> [Endpoint; 2] {
    let ends = match kind {
        LinkKind::Inproc => endpoint::in_process(2).expect("memory for two ranks"),
        _ => {
            let hub = Hub::new(2);
            let join = |rank| {
                let how = Rendezvous::Hub(hub.clone());
                let (links, interface) = (vec![kind], Some("=lo".into()));
                let setup = Setup { init_timeout: PATIENCE, links, interface, ..Setup::new(rank, 2, how) };
                Fabric::join(&setup).unwrap_or_else(|error| panic!("{kind}: {error}")).1
            };
            std::thread::scope(|scope| {
                let other = scope.spawn(|| join(1));
                let first = join(0);
                vec![first, other.join().expect("the other rank joins")]
            })
        }
    };
    assert!(ends[0].link_kind(1) == Some(kind), "the ranks are joined by {:?}", ends[0].link_kind(1));
    ends.try_into().unwrap_or_else(|_| unreachable!("two ranks"))
}

/// Calls `look` until it finds something.
fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if let Some(found) = look() {
                return found;
            }
            std::hint::spin_loop();
        }
        assert!(begin.elapsed() < PATIENCE, "{what}: nothing has come for {PATIENCE:?}");
        std::thread::yield_now();
    }
}

fn send(end: &mut Endpoint, message: &[u8]) {
    let (peer, mut sent) = (1 - end.me(), 0);
    while sent < message.len() {
        sent += wait("sending", || end.send(peer, CHANNEL, STAMP, &message[sent..]).expect("a sound link"));
        end.ring_peers();
    }
}

fn receive(end: &mut Endpoint, message: &mut [u8]) {
    let (peer, mut come) = (1 - end.me(), 0);
    while come < message.len() {
        come += wait("receiving", || {
            let came = end.recv_into(peer, CHANNEL, &mut message[come..]).expect("a sound link");
            (came > 0).then_some(came)
        });
        end.ring_peers();
    }
}

/// Plays 8 B to the other rank and back.
fn ping(end: &mut Endpoint) {
    send(end, &[1; SHORT]);
    receive(end, &mut [0; SHORT]);
}

fn pong(end: &mut Endpoint) {
    let mut message = [0; SHORT];
    receive(end, &mut message);
    send(end, &message);
}

/// One turn of the board: this rank shows 8 B and reads the other's, before or after.
fn turn(end: &mut Endpoint, first: bool) {
    let peer = 1 - end.me();
    let show = |end: &mut Endpoint| {
        end.publish(Heading { stamp: STAMP, history: 0 }, &[1; SHORT]);
        end.ring_peers();
    };
    if first {
        show(end);
    }
    let board = end.board().expect("memory joins the ranks");
    wait("a heading", || board.heading(peer));
    let mut message = [0; SHORT];
    wait("a message", || board.take(peer, SHORT, &(0..SHORT), &mut message).then_some(()));
    assert_eq!(message, [1; SHORT]);
    if !first {
        show(end);
    }
    end.finish_turn();
}

/// How long `near` takes on rank 0, while rank 1 does `far`, after a round trip.
fn time(
    [zero, one]: &mut [Endpoint; 2],
    near: impl FnOnce(&mut Endpoint),
    far: impl FnOnce(&mut Endpoint) + Send,
) -> Duration {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pong(one);
            far(one);
        });
        ping(zero);
        let begin = Instant::now();
        near(zero);
        begin.elapsed()
    })
}

const KINDS: [LinkKind; 3] = [LinkKind::Inproc, LinkKind::Shm, LinkKind::Tcp];

fn latency(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("link/round trip of 8 B");
    for kind in KINDS {
        let mut ends = pair(kind);
        group.bench_function(BenchmarkId::from_parameter(kind), |b| {
            b.iter_custom(|n| {
                time(&mut ends, |near| (0..n).for_each(|_| ping(near)), |far| (0..n).for_each(|_| pong(far)))
            });
        });
    }
    group.finish();
}

/// One way; the time ends when the other rank says that it has the last message.
fn bandwidth(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("link/messages of 1 MiB");
    group.throughput(Throughput::Bytes(LONG as u64));
    for kind in KINDS {
        let (mut ends, source, mut target) = (pair(kind), vec![1; LONG], vec![0; LONG]);
        group.bench_function(BenchmarkId::from_parameter(kind), |b| {
            b.iter_custom(|n| {
                let near = |near: &mut Endpoint| {
                    (0..n).for_each(|_| send(near, &source));
                    receive(near, &mut [0; SHORT]);
                };
                let far = |far: &mut Endpoint| {
                    (0..n).for_each(|_| receive(far, &mut target));
                    send(far, &[1; SHORT]);
                };
                time(&mut ends, near, far)
            });
        });
    }
    group.finish();
}

/// There and back, so twice the time from publishing to reading.
fn boards(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("board/turn of 8 B, there and back");
    for kind in [LinkKind::Inproc, LinkKind::Shm] {
        let mut ends = pair(kind);
        group.bench_function(BenchmarkId::from_parameter(kind), |b| {
            let near = |n: u64| move |near: &mut Endpoint| (0..n).for_each(|_| turn(near, true));
            let far = |n: u64| move |far: &mut Endpoint| (0..n).for_each(|_| turn(far, false));
            b.iter_custom(|n| time(&mut ends, near(n), far(n)));
        });
    }
    group.finish();
}

criterion_group!(benches, latency, bandwidth, boards);
criterion_main!(benches);
