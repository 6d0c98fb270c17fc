//! Ends: a peer that leaves, a peer that dies, and what it had sent before; notices.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use paceline_tests::world::Wire;
use paceline_tests::{Random, mix, seed};
use paceline_transport::control::NOTICE_BYTES_MAX;
use paceline_transport::{ControlEvent, Endpoint, Fabric, LinkError, Rendezvous};

use crate::traffic::{Arriving, Group, Leaving, bytes, event};

fn push_all(group: &mut Group, message: &mut Leaving) {
    while !message.done {
        if !message.push(&mut group.ends) {
            group.rest();
        }
    }
}

#[test]
fn what_was_sent_before_leaving_can_still_be_read() {
    for wire in Wire::all() {
        let random = &mut Random::new(mix(seed()));
        let mut group = Group::pair(wire);
        let mut messages =
            [Leaving::new(1, 0, 1, 1, 10_000), Leaving::new(1, 0, 2, 2, 0), Leaving::new(1, 0, 3, 3, 5000)];
        for message in &mut messages {
            push_all(&mut group, message);
        }
        group.ends[1].notify(0, b"the last word");
        drop(group.ends.pop());
        assert_eq!(event(&mut group, 0), (1, ControlEvent::Notice(b"the last word".to_vec())), "{wire:?}");
        assert_eq!(event(&mut group, 0), (1, ControlEvent::Left), "{wire:?}");
        for message in &messages {
            let mut arriving = Arriving::of(message);
            while !arriving.done {
                if !arriving.pull(&mut group.ends, random) {
                    group.rest();
                }
            }
        }
        group.settle();
        assert_eq!(group.ends[0].control_event(), None, "{wire:?}: it leaves once, and does not die of it");
        // Sending to it is no panic, and comes to an end.
        let message = bytes(9, 100_000);
        for _ in 0..10_000 {
            match group.ends[0].send(1, paceline_transport::Channel(5), crate::traffic::stamp(5), &message) {
                Ok(Some(sent)) if sent == message.len() => {}
                Ok(_) | Err(_) => break,
            }
        }
    }
}

#[test]
fn a_link_between_hosts_says_that_its_peer_has_closed_it() {
    for wire in Wire::asked_for(&[Wire::Tcp, Wire::Streams, Wire::Rdma, Wire::Queues]) {
        let mut group = Group::pair(wire);
        drop(group.ends.pop());
        let begin = Instant::now();
        let error = loop {
            match group.ends[0].head(1, paceline_transport::Channel(1)) {
                Ok(head) => assert!(head.is_none()),
                Err(error) => break error,
            }
            assert!(begin.elapsed() < Duration::from_secs(1), "{wire:?}: the end was not noticed");
        };
        assert!(matches!(error, LinkError::Closed), "{wire:?}: {error}");
        let again = group.ends[0].head(1, paceline_transport::Channel(1));
        assert!(again.is_err(), "{wire:?}: an end stays an end");
    }
}

#[test]
fn notices_arrive_in_order_whatever_their_length() {
    for wire in Wire::all() {
        let mut group = Group::pair(wire);
        let lens = [0, 1, 5, 4090, 4091, 4096, NOTICE_BYTES_MAX, 3, NOTICE_BYTES_MAX - 1];
        for (from, to) in [(0, 1), (1, 0)] {
            for (number, len) in lens.into_iter().enumerate() {
                let notice = bytes(number as u64, len);
                group.ends[from].notify(to, &notice);
            }
            for (number, len) in lens.into_iter().enumerate() {
                let want = ControlEvent::Notice(bytes(number as u64, len));
                assert_eq!(event(&mut group, to), (from, want), "{wire:?}, notice {number} of {len} bytes");
            }
        }
    }
}

/// Notices may be lost where nobody listens, but not mixed up, and the sender never waits.
#[test]
fn notices_that_nobody_hears_do_no_harm() {
    for wire in Wire::asked_for(&[Wire::Shm, Wire::Tcp, Wire::Rdma]) {
        let mut group = Group::pair(wire);
        for number in 0..3000u64 {
            group.ends[0].notify(1, &bytes(number, 5000));
        }
        let mut next = 0;
        let begin = Instant::now();
        group.ends[1].about_to_sleep();
        group.ends[1].sleep(Duration::from_millis(200)).unwrap();
        group.ends[1].awake();
        while let Some((from, ControlEvent::Notice(notice))) = group.ends[1].control_event() {
            assert_eq!(from, 0);
            let number = (next..3000).find(|number| bytes(*number, 5000) == notice);
            next = number.expect("a notice that was sent, in the order sent") + 1;
            assert!(begin.elapsed() < Duration::from_secs(20));
        }
        assert!(next > 0, "{wire:?}: none arrived");
    }
}

#[test]
fn a_simulated_death_is_told_and_so_is_a_cut() {
    if Wire::asked_for(&[Wire::Sim]).is_empty() {
        return;
    }
    let mut group = Group::pair(Wire::Sim);
    let random = &mut Random::new(mix(seed()));
    let mut message = Leaving::new(1, 0, 1, 1, 5000);
    push_all(&mut group, &mut message);
    let network = group.network.clone().unwrap();
    network.kill(1, network.now());
    let mut arriving = Arriving::of(&message);
    while !arriving.done {
        if !arriving.pull(&mut group.ends, random) {
            group.rest();
        }
    }
    assert!(matches!(event(&mut group, 0), (1, ControlEvent::Died(_))));
    let mut group = Group::pair(Wire::Sim);
    let network = group.network.clone().unwrap();
    network.cut(0, 1, network.now());
    for rank in 0..2 {
        assert!(matches!(event(&mut group, rank), (peer, ControlEvent::Died(_)) if peer == 1 - rank));
    }
}

const ROLE: &str = "PACELINE_TEST_LINK_END";

/// Not a test of its own: rank 1, in a process that `a_process_that_dies` starts, which sends a message and then waits to
/// be killed, or ends without a word.
#[test]
fn a_process_to_be_killed() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let mut words = role.split(' ');
    let (wire, how, path) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
    let wire = Wire::threads().into_iter().find(|known| format!("{known:?}") == wire).unwrap();
    let mut end = Fabric::join(&wire.setup(1, 2, Rendezvous::File(path.into()))).unwrap().1;
    let mut message = Leaving::new(1, 0, 1, 1, 10_000);
    while !message.done {
        message.push_from(&mut end);
    }
    end.notify(0, b"sent");
    end.ring_peers();
    if how == "exits" {
        // No destructor runs: nobody is told.
        std::process::exit(0);
    }
    std::thread::sleep(Duration::from_secs(60));
}

fn start(wire: Wire, how: &str) -> (Child, Endpoint) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("meeting");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "ends::a_process_to_be_killed"]).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.env(ROLE, format!("{wire:?} {how} {}", path.display())).spawn().unwrap();
    let end = Fabric::join(&wire.setup(0, 2, Rendezvous::File(path))).unwrap().1;
    (child, end)
}

#[test]
fn a_process_that_dies_is_missed_within_a_second() {
    for wire in Wire::asked_for(&[Wire::Shm, Wire::Tcp, Wire::Streams, Wire::Rdma]) {
        for how in ["exits", "is-killed"] {
            let random = &mut Random::new(mix(seed()));
            let (mut child, end) = start(wire, how);
            let mut group = Group::of(wire, vec![end]);
            assert_eq!(event(&mut group, 0), (1, ControlEvent::Notice(b"sent".to_vec())), "{wire:?}, {how}");
            child.kill().unwrap();
            child.wait().unwrap();
            let begin = Instant::now();
            let news = event(&mut group, 0);
            assert!(matches!(news, (1, ControlEvent::Died(_))), "{wire:?}, {how}: {news:?}");
            assert!(begin.elapsed() < Duration::from_secs(1), "{wire:?}, {how}: took {:?}", begin.elapsed());
            assert_eq!(group.ends[0].control_event(), None, "{wire:?}, {how}: it dies once");
            // What it had sent by then is here.
            let mut arriving = Arriving::of(&Leaving::new(1, 0, 1, 1, 10_000));
            while !arriving.done {
                if !arriving.pull(&mut group.ends, random) {
                    group.rest();
                }
            }
        }
    }
}
