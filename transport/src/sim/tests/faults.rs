//! Faults: who notices what, and when.

use super::*;
use crate::control::ControlEvent;
use crate::link::LinkError;
use crate::sim::{Fault, Random};

#[test]
fn a_death_is_noticed_after_the_detection_delay_behind_what_was_sent() {
    let (network, mut a, mut b) = pair(|options| options.detection = Duration::from_micros(500));
    network.kill(0, us(5));
    send_all(&mut a, 0, &[1; 100]);
    network.advance_to(us(5));
    assert!(network.is_dead(0) && !network.runnable(0, us(5)) && network.runnable(1, us(5)));
    let refused = a.send(Channel(0), STAMP, &[1]).unwrap_err();
    assert_eq!(refused.to_string(), "this rank was killed at 5.000 us (simulated)");

    network.advance_to(us(504));
    assert_eq!(read_here(&mut b), [(0, vec![1; 100])]);
    assert_eq!(b.control_event(), None);
    assert!(b.send(Channel(0), STAMP, &[1]).unwrap().is_some(), "sends into the dead vanish");

    network.advance_to(us(505));
    assert_eq!(b.control_event(), Some(ControlEvent::Died("rank 0 was killed at 5.000 us (simulated)".into())));
    for refused in [b.head().err(), b.send(Channel(0), STAMP, &[1]).err()] {
        let refused = refused.expect("the peer is dead").to_string();
        assert_eq!(refused, "connection reset: the peer was killed at 5.000 us (simulated)");
    }
    drop(a);
    let_everything_happen(&network);
    assert_eq!(b.control_event(), None, "the dead say no goodbye");
}

#[test]
fn the_window_of_a_dead_receiver_fills() {
    let (network, mut a, _b) = pair(|options| options.window_bytes = 100);
    network.kill(1, us(0));
    assert_eq!(send_all(&mut a, 0, &[1; 200]), 100);
    network.advance_to(us(999));
    assert_eq!(a.send(Channel(1), STAMP, &[]).unwrap(), None);
}

#[test]
fn a_link_made_to_a_rank_that_is_dead_breaks_too() {
    let network = SimNetwork::new(SimOptions::new(2, 0));
    network.kill(1, us(3));
    network.advance_to(us(10));
    let mut a = network.link(0, 1);
    let_everything_happen(&network);
    assert_eq!(network.now(), us(1010));
    assert!(matches!(a.control_event(), Some(ControlEvent::Died(_))));
    assert!(matches!(a.head(), Err(LinkError::Io(_))));
}

#[test]
fn a_stopped_rank_does_not_run_and_loses_nothing() {
    let (network, mut a, mut b) = pair(|_| {});
    network.stop(1, us(5), us(50));
    network.stop(1, us(40), us(70));
    for (at, runs) in [(4, true), (5, false), (49, false), (50, false), (69, false), (70, true)] {
        assert_eq!(network.runnable(1, us(at)), runs, "at {at} us");
    }
    send_all(&mut a, 0, &[1]);
    let_everything_happen(&network);
    assert_eq!(network.now(), us(70), "the clock stops where the rank runs again");
    assert_eq!(read_here(&mut b), [(0, vec![1])]);
    network.stop(1, us(100), Time::NEVER);
    assert!(network.runs_again(1, us(99)) && !network.runs_again(1, us(100)));
}

#[test]
fn a_partition_holds_frames_notices_and_credits_until_it_heals() {
    let (network, mut a, mut b) = pair(|options| options.window_bytes = 10);
    network.partition(1, 0, us(5), us(100));
    send_all(&mut a, 0, &[1; 10]);
    a.notify(b"n");
    network.advance_to(us(109));
    assert!(b.head().unwrap().is_none());
    assert_eq!(b.control_event(), None);
    network.advance_to(us(110));
    assert_eq!(read_here(&mut b), [(0, vec![1; 10])]);
    assert_eq!(b.control_event(), Some(ControlEvent::Notice(b"n".to_vec())));

    network.partition(0, 1, us(115), us(200));
    network.advance_to(us(209));
    assert_eq!(a.send(Channel(0), STAMP, &[1]).unwrap(), None);
    network.advance_to(us(210));
    assert_eq!(a.send(Channel(0), STAMP, &[1]).unwrap(), Some(1));
}

#[test]
fn a_partition_for_ever_leaves_nothing_to_wait_for_and_tells_nobody() {
    let (network, mut a, mut b) = pair(|_| {});
    network.partition(0, 1, us(0), Time::NEVER);
    network.kill(0, us(50));
    send_all(&mut a, 0, &[1; 10]);
    let_everything_happen(&network);
    assert!(network.now() <= us(1050));
    assert!(b.head().unwrap().is_none());
    assert_eq!(b.control_event(), None, "even a death isn't noticed across a partition");
}

#[test]
fn a_cut_loses_what_is_under_way_and_tells_both() {
    let (network, mut a, mut b) = pair(|_| {});
    network.cut(0, 1, us(15));
    send_all(&mut a, 0, &[1; 10]);
    network.advance_to(us(12));
    send_all(&mut a, 0, &[2; 10]);
    network.advance_to(us(15));
    for (link, peer) in [(&mut a, 1), (&mut b, 0)] {
        let event = link.control_event();
        let text = format!("the connection to rank {peer} was cut at 15.000 us (simulated)");
        assert_eq!(event, Some(ControlEvent::Died(text)));
    }
    assert_eq!(
        a.send(Channel(0), STAMP, &[]).unwrap_err().to_string(),
        "connection reset: cut at 15.000 us (simulated)"
    );
    let bytes = b.head().unwrap().expect("what had arrived whole can be read").bytes.to_vec();
    assert_eq!(bytes, [1; 10]);
    b.advance(10);
    assert!(matches!(b.head(), Err(LinkError::Io(_))), "the frame under way is lost");
    let_everything_happen(&network);
    drop(a);
    let_everything_happen(&network);
    assert_eq!(b.control_event(), None);
}

#[test]
fn a_frame_cut_in_the_middle_is_an_error_and_not_a_wait() {
    let (network, mut a, mut b) = pair(|options| options.piece_bytes = 1000);
    network.cut(0, 1, Time(12_500));
    send_all(&mut a, 0, &[1; 3000]);
    network.advance_to(us(12));
    assert_eq!(b.head().unwrap().unwrap().bytes.len(), 2000);
    network.advance_to(us(20));
    assert!(matches!(b.head(), Err(LinkError::Io(_))));
}

#[test]
fn a_cut_leaves_other_pairs_alone() {
    let network = SimNetwork::new(SimOptions::new(3, 0));
    let (mut a, mut b) = (network.link(0, 2), network.link(2, 0));
    let _cut = (network.link(0, 1), network.link(1, 0));
    network.cut(0, 1, us(0));
    send_all(&mut a, 0, &[1]);
    let_everything_happen(&network);
    assert_eq!(read_here(&mut b), [(0, vec![1])]);
    assert_eq!(b.control_event(), None);
}

#[test]
fn a_straggler_is_late_for_as_long_as_it_straggles() {
    let (network, mut a, mut b) = pair(|options| options.link.bytes_per_second = u64::MAX);
    network.straggle(0, us(0), us(5), Duration::from_micros(100));
    send_all(&mut a, 0, &[1]);
    assert_eq!(network.next_event(), Some(us(110)));
    send_all(&mut b, 0, &[1]);
    assert_eq!(network.next_event(), Some(us(10)), "only what the straggler sends is late");
    network.advance_to(us(200));
    send_all(&mut a, 0, &[1]);
    assert_eq!(network.next_event(), Some(us(210)));
}

#[test]
fn lost_notices_are_lost_and_goodbyes_are_not() {
    let (network, mut a, mut b) = pair(|_| {});
    network.drop_notices(0, 1, us(0), us(5));
    a.notify(b"lost");
    b.notify(b"kept");
    network.advance_to(us(5));
    a.notify(b"kept");
    drop(a);
    let_everything_happen(&network);
    assert_eq!(b.control_event(), Some(ControlEvent::Notice(b"kept".to_vec())));
    assert_eq!(b.control_event(), Some(ControlEvent::Left));
}

#[test]
fn drawn_faults_are_of_every_kind_and_valid() {
    let mut random = Random::new(1);
    let mut kinds = std::collections::BTreeSet::new();
    for ranks in 2..50 {
        let fault = Fault::random(&mut random, ranks, Duration::from_millis(1));
        SimNetwork::new(SimOptions::new(ranks, 0)).inject(fault);
        kinds.insert(format!("{fault:?}").split(' ').next().unwrap().to_owned());
    }
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["Cut", "Kill", "Partition", "Stop", "Straggle"]);
}

#[test]
#[should_panic(expected = "names a rank that isn't among the 2")]
fn a_fault_of_nobody_is_refused() {
    SimNetwork::new(SimOptions::new(2, 0)).kill(2, us(0));
}
