//! An owner who sleeps until an edge of `epoll` is woken whenever it can go on.

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::*;

/// Far more than any wait that succeeds; a lost edge fails the test after it.
const PATIENCE: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

/// Sends and receives everything, sleeping when nothing moves.
fn exchange(link: &mut TcpLink, mut outboxes: Vec<Outbox>, n_bytes: usize, into_place: bool) -> (Vec<Outbox>, Inbox) {
    let waiting = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let edges = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
    for (lane, fd) in link.fds().enumerate() {
        epoll::add(&waiting, fd, epoll::EventData::new_u64(lane as u64), edges).unwrap();
    }
    let mut inbox = Inbox::default();
    loop {
        let mut moved = false;
        for outbox in outboxes.iter_mut().filter(|outbox| !outbox.is_empty()) {
            moved |= outbox.push(link).unwrap();
        }
        moved |= inbox.pull(link, 100_000, into_place).unwrap();
        if moved {
            continue;
        }
        let came: usize = inbox.channels.values().flatten().map(Vec::len).sum();
        if came == n_bytes && outboxes.iter().all(Outbox::is_empty) {
            return (outboxes, inbox);
        }
        let mut events = Vec::with_capacity(8);
        let woken = epoll::wait(&waiting, spare_capacity(&mut events), Some(&PATIENCE)).unwrap();
        assert!(woken > 0, "no edge came; {came} of {n_bytes} bytes are here");
    }
}

#[test]
fn no_edge_is_lost() {
    for (n_streams, kernel_bytes) in [(1, Some(4096)), (2, Some(4096)), (4, Some(65_536)), (1, None), (4, None)] {
        eprintln!("{n_streams} streams, {kernel_bytes:?}");
        let (mut near, mut far) = links(V4, n_streams, kernel_bytes);
        let sizes: [&[usize]; 3] = [&[3_000_000, 5], &[8, 8, 70_000, 1 << 20], &[100_000]];
        let outboxes = |seed: u64| -> Vec<Outbox> {
            let messages = |sizes: &[usize]| sizes.iter().map(|&bytes| message(seed + bytes as u64, bytes)).collect();
            sizes.iter().enumerate().map(|(i, sizes)| Outbox::new(i as u64, messages(sizes))).collect()
        };
        let n_bytes = sizes.iter().copied().flatten().sum();
        let [(near_sent, near_came), (far_sent, far_came)] = std::thread::scope(|scope| {
            let near = scope.spawn(|| exchange(&mut near, outboxes(1), n_bytes, true));
            let far = scope.spawn(|| exchange(&mut far, outboxes(2), n_bytes, false));
            [near.join().unwrap(), far.join().unwrap()]
        });
        near_came.check(&far_sent);
        far_came.check(&near_sent);
    }
}
