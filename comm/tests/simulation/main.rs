//! Whole groups of ranks on a simulated network: the real engine and every row, under delays and faults drawn from seeds.
//!
//! Every rank must end with the right result, or with an error that names a rank something was done to, and never later
//! than its deadline. `PACELINE_SEEDS=2000` tries more seeds than the default; `PACELINE_SEED=17` repeats one, which a
//! failure prints together with its scenario and the last events on the network.

mod outcome;
mod scenario;

use std::cell::RefCell;
use std::time::Duration;

use paceline_comm::algorithm::ROWS;
use paceline_comm::{Communicator, Result};
use paceline_transport::Time;
use paceline_transport::sim::{RankStep, SimNetwork, run};

use outcome::{Ending, check};
use scenario::{Call, Scenario, Started};

/// The seeds to try.
fn seeds() -> Vec<u64> {
    let number =
        |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number of seeds, or a seed"));
    match (number("PACELINE_SEED"), number("PACELINE_SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, n) => (0..n.unwrap_or(15)).collect(),
    }
}

/// One rank's calls, once they are started.
fn start(comm: &Communicator, calls: &[Call], n: usize) -> Vec<Result<Started>> {
    calls.iter().enumerate().map(|(number, call)| call.start(comm, number, n)).collect()
}

/// Runs a scenario and says how each rank ended, `None` for those that didn't, and what was last seen on the network.
fn play(scenario: &Scenario) -> (SimNetwork, Vec<Option<Ending>>, String) {
    let network = SimNetwork::new(scenario.options.clone());
    scenario.slow.iter().for_each(|&(from, to, profile)| network.set_link(from, to, profile));
    scenario.faults.iter().for_each(|&fault| network.inject(fault));
    let comms = Communicator::simulated(&network, scenario.timeout).expect("a simulated group");
    let endings: Vec<RefCell<Option<Ending>>> = comms.iter().map(|_| RefCell::new(None)).collect();
    let mut ranks: Vec<_> = comms
        .into_iter()
        .zip(&endings)
        .map(|(comm, ending)| {
            let starts = Time(0).after(scenario.starts[comm.rank()]);
            let (mut comm, mut works) = (Some(comm), None);
            move |now: Time| {
                if now < starts {
                    return RankStep::Waiting(starts);
                }
                let here = comm.as_ref().expect("a rank that is done isn't polled");
                let begun: &Vec<_> = works.get_or_insert_with(|| start(here, &scenario.calls, scenario.options.ranks));
                let step = here.step();
                if !begun.iter().all(|work| work.as_ref().map_or(true, Started::has_ended)) {
                    assert_ne!(
                        step,
                        RankStep::Done,
                        "rank {} has nothing to do and calls that didn't end",
                        here.rank()
                    );
                    return step;
                }
                let results = works.take().expect("begun above").into_iter().map(|work| work.and_then(Started::wait));
                *ending.borrow_mut() = Some(Ending { at: now, results: results.collect() });
                if scenario.leaves_early {
                    comm = None;
                }
                RankStep::Done
            }
        })
        .collect();
    run(&network, &mut ranks).unwrap_or_else(|error| panic!("{error}\n{scenario:#?}"));
    let trace = network.trace();
    drop(ranks);
    (network, endings.into_iter().map(RefCell::into_inner).collect(), trace)
}

/// Plays a scenario and fails unless it ended as it should; how many calls ended with an error.
fn play_and_check(scenario: &Scenario) -> usize {
    let (network, endings, trace) = play(scenario);
    if let Err(why) = check(scenario, &network, &endings) {
        panic!("PACELINE_SEED={}: {why}\n{scenario:#?}\n{trace}", scenario.options.seed);
    }
    endings.iter().flatten().flat_map(|ending| &ending.results).filter(|result| result.is_err()).count()
}

#[test]
fn every_row_ends_right_whatever_the_delays() {
    for seed in seeds() {
        for row in 0..ROWS.len() {
            if let Some(scenario) = Scenario::calm(seed, row) {
                play_and_check(&scenario);
            }
        }
    }
}

#[test]
fn several_calls_at_once_end_right_whatever_the_delays() {
    seeds().into_iter().for_each(|seed| assert_eq!(play_and_check(&Scenario::crowded(seed)), 0));
}

#[test]
fn faults_end_in_the_right_result_or_name_the_right_rank_in_time() {
    let seeds = seeds();
    let scenarios = seeds.iter().flat_map(|&seed| (0..8).map(move |part| Scenario::faulty(seed, part)));
    let failed: Vec<_> = scenarios.map(|scenario| play_and_check(&scenario)).collect();
    if seeds.len() > 4 {
        let n_failed = failed.iter().filter(|&&calls| calls > 0).count();
        assert!(0 < n_failed && n_failed < failed.len(), "{n_failed} of {} runs met their faults", failed.len());
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let scenario = Scenario::faulty(3, 0);
    let traced = || play(&scenario).2;
    assert_eq!(traced(), traced());
}

#[test]
fn five_hundred_ranks_reduce() {
    let mut scenario = Scenario::calm(1, ROWS.iter().position(|row| row.name == "recursive_doubling").expect("a row"))
        .expect("it fits");
    scenario.resize(500, Duration::from_millis(1));
    play_and_check(&scenario);
}
