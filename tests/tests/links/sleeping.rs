//! Sleeping: whoever sleeps is woken by whatever could move, and by nothing else for long.

use std::time::{Duration, Instant};

use paceline_tests::world::{Wire, at_once};
use paceline_tests::{Random, is_asked_for, mix, seed};
use paceline_transport::{ControlEvent, Endpoint};

use crate::traffic::{Arriving, BOUND, Group, Leaving};

/// A sleep that nobody interrupts takes this long: one lost wake-up is enough to be noticed.
const SLEEP: Duration = Duration::from_secs(30);

/// Looks, and sleeps whenever nothing moves, until `look` says that it is done.
fn sleep_until_done(end: &mut Endpoint, mut look: impl FnMut(&mut Endpoint) -> Look) {
    let begin = Instant::now();
    loop {
        let mut seen = look(end);
        end.ring_peers();
        if seen == Look::Nothing {
            end.about_to_sleep();
            seen = look(end);
            end.ring_peers();
            if seen == Look::Nothing {
                end.sleep(SLEEP).unwrap();
            }
            end.awake();
        }
        if seen == Look::Done {
            return;
        }
        assert!(begin.elapsed() < BOUND, "a wake-up was lost");
    }
}

#[derive(PartialEq)]
enum Look {
    Nothing,
    Moved,
    Done,
}

/// Sends and receives messages, sleeping in between.
fn exchange(end: &mut Endpoint, mut leaving: Option<Leaving>, mut arriving: Option<Arriving>, random: &mut Random) {
    sleep_until_done(end, |end| {
        let mut moved = false;
        if let Some(message) = &mut leaving {
            while message.push_from(end) {
                moved = true;
            }
        }
        if let Some(message) = &mut arriving {
            while message.pull_at(end, random).unwrap() {
                moved = true;
            }
        }
        let done = leaving.as_ref().is_none_or(|m| m.done) && arriving.as_ref().is_none_or(|m| m.done);
        match (done, moved) {
            (true, _) => Look::Done,
            (_, true) => Look::Moved,
            _ => Look::Nothing,
        }
    });
}

#[test]
fn a_ball_thrown_between_sleepers_is_never_lost() {
    for wire in Wire::threads() {
        let begin = Instant::now();
        at_once(Group::pair(wire).ends, |mut end| {
            let (me, peer) = (end.me(), 1 - end.me());
            let random = &mut Random::new(mix(seed() ^ me as u64));
            for turn in 0..1500u64 {
                let len = [0, 8, 24, 25, 3000][turn as usize % 5];
                let mine = Leaving::new(me, peer, turn, 2 * turn + me as u64, len);
                let theirs = Arriving::of(&Leaving::new(peer, me, turn, 2 * turn + peer as u64, len));
                let (mine, theirs) = (Some(mine), Some(theirs));
                // One throws first, the other catches first.
                if (me as u64 + turn).is_multiple_of(2) {
                    exchange(&mut end, mine, None, random);
                    exchange(&mut end, None, theirs, random);
                } else {
                    exchange(&mut end, None, theirs, random);
                    exchange(&mut end, mine, None, random);
                }
            }
        });
        assert!(begin.elapsed() < BOUND, "{wire:?}: took {:?}", begin.elapsed());
    }
}

/// Who waits for room sleeps as well, and both sides at once have much to send.
#[test]
fn a_full_link_wakes_its_sender_when_there_is_room() {
    // More than a link holds.
    let len = if is_asked_for("PACELINE_TEST_FEW") { 4 << 20 } else { 12 << 20 };
    for wire in Wire::threads() {
        at_once(Group::pair(wire).ends, |mut end| {
            let (me, peer) = (end.me(), 1 - end.me());
            let random = &mut Random::new(mix(seed() ^ me as u64));
            for turn in 0..4u64 {
                let mine = Leaving::new(me, peer, turn, 2 * turn + me as u64, len);
                let theirs = Arriving::of(&Leaving::new(peer, me, turn, 2 * turn + peer as u64, len));
                match turn {
                    // Both ways; one way; the other.
                    0 | 1 => exchange(&mut end, Some(mine), Some(theirs), random),
                    _ if me as u64 == turn % 2 => exchange(&mut end, Some(mine), None, random),
                    _ => exchange(&mut end, None, Some(theirs), random),
                }
            }
        });
    }
}

/// Rank 0 sleeps on three links and never knows which of them will have something.
#[test]
fn a_sleeper_watches_all_its_links() {
    for wire in Wire::threads() {
        at_once(Group::new(wire, 4).ends, |mut end| {
            let me = end.me();
            let random = &mut Random::new(mix(seed() ^ me as u64));
            for turn in 0..300u64 {
                let turn_of = 1 + mix(turn) as usize % 3;
                let there = Leaving::new(turn_of, 0, turn, 2 * turn, 2000);
                let back = Leaving::new(0, turn_of, turn, 2 * turn + 1, 50);
                if me == 0 {
                    exchange(&mut end, None, Some(Arriving::of(&there)), random);
                    exchange(&mut end, Some(back), None, random);
                } else if me == turn_of {
                    let answer = Arriving::of(&back);
                    exchange(&mut end, Some(there), None, random);
                    exchange(&mut end, None, Some(answer), random);
                }
            }
        });
    }
}

#[test]
fn a_waker_a_notice_and_a_leaving_peer_wake_a_sleeper() {
    for wire in Wire::threads() {
        let mut ends = Group::pair(wire).ends;
        let (mut peer, mut sleeper) = (ends.pop().unwrap(), ends.pop().unwrap());
        let waker = sleeper.waker();
        let begin = Instant::now();
        let (said, heard) = std::sync::mpsc::channel::<&'static str>();
        let thread = std::thread::spawn(move || {
            let look = |end: &mut Endpoint, want: &dyn Fn(Option<(usize, ControlEvent)>) -> bool| {
                sleep_until_done(end, |end| {
                    let event = end.control_event();
                    let any = event.is_some();
                    match want(event) {
                        true => Look::Done,
                        false if any => Look::Moved,
                        false => Look::Nothing,
                    }
                });
            };
            // Whoever wakes it by hand says why.
            let mut word = None;
            sleep_until_done(&mut sleeper, |_| {
                word = heard.try_recv().ok();
                if word.is_some() { Look::Done } else { Look::Nothing }
            });
            assert_eq!(word, Some("awake"));
            look(&mut sleeper, &|event| event == Some((1, ControlEvent::Notice(b"dinner".to_vec()))));
            look(&mut sleeper, &|event| event == Some((1, ControlEvent::Left)));
        });
        std::thread::sleep(Duration::from_millis(20));
        said.send("awake").unwrap();
        waker.wake();
        std::thread::sleep(Duration::from_millis(20));
        peer.notify(0, b"dinner");
        std::thread::sleep(Duration::from_millis(20));
        drop(peer);
        thread.join().unwrap();
        assert!(begin.elapsed() < BOUND, "{wire:?}: took {:?}", begin.elapsed());
    }
}

#[test]
fn a_sleep_ends_at_its_end_and_news_that_came_before_cut_it_short() {
    for wire in Wire::threads() {
        let mut group = Group::pair(wire);
        for _ in 0..3 {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(25) {
                group.ends[0].about_to_sleep();
                group.ends[0].sleep(Duration::from_millis(30)).unwrap();
                group.ends[0].awake();
            }
            assert!(begin.elapsed() < BOUND);
        }
        group.ends[1].notify(0, b"early");
        let begin = Instant::now();
        group.ends[0].about_to_sleep();
        group.ends[0].sleep(SLEEP).unwrap();
        group.ends[0].awake();
        assert!(begin.elapsed() < BOUND, "{wire:?}: slept over a notice");
        let said = std::iter::from_fn(|| group.ends[0].control_event()).next();
        assert_eq!(said, Some((1, ControlEvent::Notice(b"early".to_vec()))), "{wire:?}");
    }
}
