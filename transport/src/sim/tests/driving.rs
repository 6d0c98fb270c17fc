//! The driver: token rings that end, stick, wait too long, or never rest.

use super::*;
use crate::sim::{RankStep, RunErrorKind, run};

type Rank<'a> = Box<dyn FnMut(Time) -> RankStep + 'a>;

/// Ranks that pass a token of `bytes` round the ring `n_laps` times and give up at `deadline`; who gave up is pushed to
/// `gave_up`.
fn ring<'a>(
    network: &SimNetwork,
    bytes: usize,
    n_laps: usize,
    deadline: Time,
    gave_up: &'a std::cell::RefCell<Vec<usize>>,
) -> Vec<Rank<'a>> {
    let n = network.ranks();
    let rank = |me: usize| -> Rank<'a> {
        let (mut left, mut right) = (network.link(me, (me + n - 1) % n), network.link(me, (me + 1) % n));
        let token = vec![me as u8; bytes];
        let (mut n_sent, mut n_read) = (0, 0);
        Box::new(move |now| {
            if n_sent == n_laps && n_read == n_laps {
                return RankStep::Done;
            }
            if now >= deadline {
                gave_up.borrow_mut().push(me);
                return RankStep::Done;
            }
            let may_send = if me == 0 { n_sent == n_read } else { n_sent < n_read };
            if n_sent < n_laps && may_send && right.send(Channel(0), STAMP, &token).unwrap().is_some() {
                n_sent += 1;
                return RankStep::Moved;
            }
            if let Some(bytes) = left.head().unwrap().map(|head| head.bytes.len()) {
                left.advance(bytes);
                n_read += 1;
                return RankStep::Moved;
            }
            RankStep::Waiting(deadline)
        })
    };
    (0..n).map(rank).collect()
}

#[test]
fn a_token_takes_a_latency_per_hop() {
    let network = SimNetwork::new(SimOptions::new(5, 0));
    let gave_up = Default::default();
    let end = run(&network, &mut ring(&network, 1000, 3, Time::NEVER, &gave_up)).unwrap();
    assert_eq!(end, Time(3 * 5 * 11_000));
}

#[test]
fn ranks_that_wait_for_ever_are_found_and_named() {
    let network = SimNetwork::new(SimOptions::new(3, 42));
    network.partition(1, 2, us(0), Time::NEVER);
    let gave_up = Default::default();
    let error = run(&network, &mut ring(&network, 8, 1, Time::NEVER, &gave_up)).unwrap_err();
    assert_eq!((error.kind, error.ranks.clone()), (RunErrorKind::Stuck, vec![0, 2]));
    let text = error.to_string();
    assert!(text.contains("seed 42") && text.contains("held for ever by a partition"), "{text}");
}

#[test]
fn ranks_wake_at_their_deadline_and_not_later() {
    let network = SimNetwork::new(SimOptions::new(3, 0));
    network.partition(1, 2, us(0), Time::NEVER);
    let gave_up = Default::default();
    let end = run(&network, &mut ring(&network, 8, 1, us(777), &gave_up)).unwrap();
    assert_eq!((end, gave_up.into_inner()), (us(777), vec![0, 2]));
}

#[test]
fn a_rank_that_ignores_its_deadline_is_named() {
    let network = SimNetwork::new(SimOptions::new(2, 0));
    let deadline = us(10);
    let mut ranks: Vec<Rank> = vec![Box::new(|_| RankStep::Done), Box::new(move |_| RankStep::Waiting(deadline))];
    let error = run(&network, &mut ranks).unwrap_err();
    assert_eq!((error.kind, error.ranks), (RunErrorKind::Overdue(deadline), vec![1]));
}

#[test]
fn the_dead_and_the_stopped_for_good_are_not_waited_for() {
    let faults: [fn(&SimNetwork); 2] =
        [|network| network.kill(1, us(3)), |network| network.stop(1, us(3), Time::NEVER)];
    for fault in faults {
        let network = SimNetwork::new(SimOptions::new(4, 0));
        fault(&network);
        network.stop(3, us(15), Time::NEVER);
        let gave_up = Default::default();
        let end = run(&network, &mut ring(&network, 8, 9, us(100), &gave_up)).unwrap();
        assert_eq!((end, gave_up.into_inner()), (us(100), vec![0, 2]));
    }
}

#[test]
fn a_stopped_rank_is_polled_again_when_it_runs() {
    let network = SimNetwork::new(SimOptions::new(3, 0));
    network.stop(1, us(5), us(500));
    let gave_up = Default::default();
    let end = run(&network, &mut ring(&network, 1000, 1, us(100_000), &gave_up)).unwrap();
    assert_eq!((end, gave_up.into_inner()), (us(500 + 22), vec![]));
}

#[test]
fn a_rank_stopped_over_its_deadline_gives_up_when_it_runs() {
    let network = SimNetwork::new(SimOptions::new(2, 0));
    network.stop(1, us(5), us(500));
    let gave_up = Default::default();
    let end = run(&network, &mut ring(&network, 1000, 1, us(100), &gave_up)).unwrap();
    assert_eq!((end, gave_up.into_inner()), (us(500), vec![0, 1]));
}

#[test]
fn ranks_that_never_rest_are_found() {
    let network = SimNetwork::new(SimOptions::new(1, 0));
    let error = run(&network, &mut [|_| RankStep::Moved]).unwrap_err();
    assert_eq!(error.kind, RunErrorKind::Restless);
}

#[test]
fn a_run_without_end_is_given_up_at_the_horizon() {
    let mut options = SimOptions::new(1, 0);
    options.horizon = Duration::from_millis(1);
    let network = SimNetwork::new(options);
    let error = run(&network, &mut [|now: Time| RankStep::Waiting(now.after(Duration::from_micros(1)))]).unwrap_err();
    assert_eq!((error.kind, error.at), (RunErrorKind::Endless, us(1000)));
}

#[test]
fn the_same_seed_makes_the_same_run_and_another_seed_another() {
    let traced = |seed: u64| {
        let mut options = SimOptions::new(6, seed);
        options.trace_events = 10_000;
        options.ragged = true;
        options.link = jittery(Duration::from_micros(50));
        let network = SimNetwork::new(options);
        let gave_up = Default::default();
        run(&network, &mut ring(&network, 1, 20, Time::NEVER, &gave_up)).unwrap();
        network.trace()
    };
    assert_eq!(traced(5), traced(5));
    assert_ne!(traced(5), traced(6));
}
