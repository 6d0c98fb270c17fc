//! Ranks that are joined by several kinds of links at once, as those of several hosts are.

use paceline_comm::{Communicator, LinkKind, ReduceOp, Rendezvous, Setup};
use paceline_tests::seed;
use paceline_tests::world::{Wire, at_once};
use paceline_transport::rendezvous::Hub;

use crate::runner::run_threads;
use crate::sample::sample;

const RANKS: usize = 6;

/// Each third rank may use other kinds of links: every pair finds the best that both may use.
fn setup(hub: &Hub, rank: usize) -> Setup {
    let links = match rank % 3 {
        0 => vec![LinkKind::Inproc, LinkKind::Tcp],
        1 => vec![LinkKind::Shm, LinkKind::Tcp],
        _ => vec![LinkKind::Inproc, LinkKind::Shm, LinkKind::Tcp],
    };
    let streams = Some(1 + rank % 2);
    Setup { links, tcp_streams: streams, ..Wire::Tcp.setup(rank, RANKS, Rendezvous::Hub(hub.clone())) }
}

fn expected(one: usize, other: usize) -> LinkKind {
    match (one % 3, other % 3) {
        (0, 0) | (0, 2) | (2, 0) | (2, 2) => LinkKind::Inproc,
        (0, 1) | (1, 0) => LinkKind::Tcp,
        _ => LinkKind::Shm,
    }
}

fn mixed_world() -> Vec<Communicator> {
    let hub = Hub::new(RANKS);
    let setups: Vec<Setup> = (0..RANKS).map(|rank| setup(&hub, rank)).collect();
    let ranks = at_once(setups, |setup| Communicator::connect(&setup).unwrap());
    for rank in &ranks {
        for peer in (0..RANKS).filter(|peer| *peer != rank.rank()) {
            assert_eq!(rank.link_kind(peer), Some(expected(rank.rank(), peer)), "{} and {peer}", rank.rank());
        }
    }
    ranks
}

#[test]
fn rows_do_not_mind_how_ranks_are_joined() {
    let cases = sample(seed() + 1).into_iter().filter(|(wire, case)| case.ranks == RANKS && *wire != Wire::Sim);
    let cases: Vec<_> = cases.map(|(_, case)| case).collect();
    assert!(cases.len() > 100, "{} cases", cases.len());
    let wrong = run_threads(mixed_world(), &cases);
    assert!(wrong.is_empty(), "seed {}:\n{}", seed(), wrong.join("\n"));
}

#[test]
fn parts_of_a_mixed_world_are_joined_as_the_whole_is() {
    at_once(mixed_world(), |comm| {
        let me = comm.rank();
        let part = comm.split(Some(me as u64 / 3), -(me as i64)).unwrap().unwrap();
        for peer in (0..3).filter(|peer| *peer != part.rank()) {
            let theirs = me / 3 * 3 + 2 - peer;
            assert_eq!(part.link_kind(peer), Some(expected(me, theirs)), "{me} and {theirs}");
        }
        let mut total = vec![1u32; 40_000];
        part.all_reduce_in_place(&mut total, ReduceOp::Sum).unwrap();
        assert!(total.iter().all(|element| *element == 3));
    });
}

/// Processes that bring several ranks each, here played by threads.
#[test]
fn a_process_may_bring_several_ranks() {
    let hub = Hub::new(3);
    let brings = [2, 1, 3];
    let setups = (0..3).map(|process| Wire::Shm.setup(process, 3, Rendezvous::Hub(hub.clone()))).collect();
    let worlds = at_once(setups, |setup| Communicator::connect_threads(&setup, brings[setup.rank]).unwrap());
    let ranks: Vec<Communicator> = worlds.into_iter().flatten().collect();
    assert_eq!(ranks.iter().map(Communicator::rank).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    at_once(ranks, |comm| {
        let mut all = [0u64; 6];
        comm.all_gather(&[comm.rank() as u64], &mut all).unwrap();
        assert_eq!(all, [0, 1, 2, 3, 4, 5]);
    });
}
