//! An owner who sleeps until an edge of `epoll` is woken whenever it can go on.

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::super::frame::Frame;
use super::*;

/// Far more than any wait that succeeds; a lost edge fails the test after it.
const PATIENCE: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

fn watch(link: &TcpLink) -> std::os::fd::OwnedFd {
    let waiting = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let edges = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
    for (lane, fd) in link.fds().enumerate() {
        epoll::add(&waiting, fd, epoll::EventData::new_u64(lane as u64), edges).unwrap();
    }
    waiting
}

/// How an end receives and sleeps.
#[derive(Clone, Copy)]
struct Manner {
    into_place: bool,
    coalesces: bool,
}

/// Sends and receives everything, sleeping when nothing moves.
fn exchange(link: &mut TcpLink, mut outboxes: Vec<Outbox>, n_bytes: usize, manner: Manner) -> (Vec<Outbox>, Inbox) {
    let waiting = watch(link);
    let mut inbox = Inbox::default();
    loop {
        let mut moved = false;
        for outbox in outboxes.iter_mut().filter(|outbox| !outbox.is_empty()) {
            moved |= outbox.push(link).unwrap();
        }
        moved |= inbox.pull(link, 100_000, manner.into_place).unwrap();
        if moved {
            continue;
        }
        let came: usize = inbox.channels.values().flatten().map(Vec::len).sum();
        if came == n_bytes && outboxes.iter().all(Outbox::is_empty) {
            return (outboxes, inbox);
        }
        link.coalesce(manner.coalesces);
        let mut events = Vec::with_capacity(8);
        let woken = epoll::wait(&waiting, spare_capacity(&mut events), Some(&PATIENCE)).unwrap();
        assert!(woken > 0, "no edge came; {came} of {n_bytes} bytes are here");
    }
}

#[test]
fn no_edge_is_lost() {
    let networks = [(1, Some(4096)), (2, Some(4096)), (4, Some(65_536)), (1, None), (4, None)];
    for ((n_streams, kernel_bytes), coalesces) in
        networks.into_iter().flat_map(|network| [(network, false), (network, true)])
    {
        eprintln!("{n_streams} streams, {kernel_bytes:?}, coalesces: {coalesces}");
        let (mut near, mut far) = links(V4, n_streams, kernel_bytes);
        let sizes: [&[usize]; 3] = [&[3_000_000, 5], &[8, 8, 70_000, 1 << 20], &[100_000]];
        let outboxes = |seed: u64| -> Vec<Outbox> {
            let messages = |sizes: &[usize]| sizes.iter().map(|&bytes| message(seed + bytes as u64, bytes)).collect();
            sizes.iter().enumerate().map(|(i, sizes)| Outbox::new(i as u64, messages(sizes))).collect()
        };
        let n_bytes = sizes.iter().copied().flatten().sum();
        let [(near_sent, near_came), (far_sent, far_came)] = std::thread::scope(|scope| {
            let near =
                scope.spawn(|| exchange(&mut near, outboxes(1), n_bytes, Manner { into_place: true, coalesces }));
            let far = scope.spawn(|| exchange(&mut far, outboxes(2), n_bytes, Manner { into_place: false, coalesces }));
            [near.join().unwrap(), far.join().unwrap()]
        });
        near_came.check(&far_sent);
        far_came.check(&near_sent);
    }
}

#[test]
fn coalesced_bytes_wake_by_the_end_of_their_frame() {
    use std::io::Write;
    let (mut peers, mine) = streams(V4, 1, None);
    let mut link = TcpLink::new(mine).unwrap();
    let waiting = watch(&link);
    let wakes = |limit: &Timespec| {
        let mut events = Vec::with_capacity(8);
        epoll::wait(&waiting, spare_capacity(&mut events), Some(limit)).unwrap() > 0
    };
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let frame = Frame { channel: Channel(1), stamp: Stamp::default(), sequence: 0, bytes: 30_000 };
    let payload = message(7, 30_000);
    peers[0].write_all(&frame.encode()).unwrap();
    peers[0].write_all(&payload[..1000]).unwrap();
    let mut came = vec![0; 30_000];
    let mut have = 0;
    while have < 1000 {
        assert!(wakes(&PATIENCE), "what begins a frame wakes");
        if link.head().unwrap().is_some() {
            have += link.recv_into(&mut came[have..]).unwrap();
        }
    }
    while wakes(&now) {}
    link.coalesce(true);
    peers[0].write_all(&payload[1000..10_000]).unwrap();
    assert!(!wakes(&Timespec { tv_sec: 0, tv_nsec: 20_000_000 }), "a piece of a frame wakes nobody");
    peers[0].write_all(&payload[10_000..]).unwrap();
    while have < came.len() {
        assert!(wakes(&PATIENCE), "the end of a frame wakes");
        while link.head().unwrap().is_some_and(|head| head.left > 0) {
            match link.recv_into(&mut came[have..]).unwrap() {
                0 => break,
                bytes => have += bytes,
            }
        }
    }
    assert!(came == payload, "the bytes are those sent");
    while wakes(&now) {}
    link.coalesce(false);
    peers[0].write_all(&frame.encode()[..1]).unwrap();
    assert!(wakes(&PATIENCE), "uncoalesced, every byte wakes");
}
