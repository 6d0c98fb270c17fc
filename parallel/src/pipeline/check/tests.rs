//! Mutants, and what is said of them.

use std::collections::HashSet;

use proptest::prelude::*;
use proptest::sample::Index;

use super::lowered::ends_with;
use super::*;
use crate::pipeline::{Lowered, SCHEDULES, Shape, schedule_row, text};

fn shape_of(name: &str) -> Shape {
    Shape::new(4, 8).chunks(if name == "interleaved" { 2 } else { 1 })
}

fn schedules() -> impl Iterator<Item = (&'static str, Schedule)> {
    SCHEDULES.iter().map(|row| (row.name, row.schedule(shape_of(row.name)).unwrap()))
}

#[test]
fn a_table_without_an_action_is_refused() {
    for (name, schedule) in schedules() {
        for rank in 0..schedule.ranks.len() {
            for position in 0..schedule.ranks[rank].len() {
                let mut mutant = schedule.clone();
                let step = mutant.ranks[rank].remove(position);
                let error = check(&mutant).expect_err(&format!("{name}: {step} of rank {rank} dropped"));
                assert_eq!(error.rank as usize, rank, "{name}: {error}");
                let Fault::Missing(action) = error.fault else { panic!("{name}: {error}") };
                assert!(step.actions().any(|dropped| dropped == action), "{name}: {error}");
            }
        }
    }
}

#[test]
fn a_table_with_an_action_twice_is_refused() {
    for (name, schedule) in schedules() {
        for rank in 0..schedule.ranks.len() {
            for position in 0..schedule.ranks[rank].len() {
                let mut mutant = schedule.clone();
                let step = mutant.ranks[rank][position];
                mutant.ranks[rank].push(step);
                let error = check(&mutant).expect_err(name);
                let want = (rank as u32, schedule.ranks[rank].len(), step.to_string(), Fault::Twice(position));
                assert_eq!((error.rank, error.position, error.action, error.fault), want, "{name}");
            }
        }
    }
}

#[test]
fn a_table_with_an_action_on_another_rank_is_refused() {
    for (name, schedule) in schedules() {
        let mut mutant = schedule.clone();
        let step = mutant.ranks[1].remove(0);
        mutant.ranks[2].insert(0, step);
        let error = check(&mutant).expect_err(name);
        assert_eq!((error.rank, error.position, error.fault), (2, 0, Fault::WrongRank(1)), "{name}");
    }
}

/// The order of actions and their needs has no circle: told by another algorithm, over one graph of everything.
fn has_no_circle<T: Copy + Eq + std::hash::Hash>(lists: &[Vec<T>], needs: impl Fn(T) -> Vec<T>) -> bool {
    let mut before: Vec<(T, HashSet<T>)> = Vec::new();
    for list in lists {
        for (position, &item) in list.iter().enumerate() {
            let mut all: HashSet<T> = needs(item).into_iter().collect();
            all.extend(position.checked_sub(1).map(|last| list[last]));
            match before.iter_mut().find(|(other, _)| *other == item) {
                Some((_, known)) => known.extend(all),
                None => before.push((item, all)),
            }
        }
    }
    while !before.is_empty() {
        let left: HashSet<T> = before.iter().map(|(item, _)| *item).collect();
        let n = before.len();
        before.retain(|(_, needs)| needs.iter().any(|need| left.contains(need)));
        if before.len() == n {
            return false;
        }
    }
    true
}

#[test]
fn swaps_are_refused_exactly_when_they_close_a_circle() {
    let mut n_refused = 0;
    for (name, schedule) in schedules().filter(|(name, _)| *name != "interleaved") {
        let n_stages = schedule.n_stages();
        let needs = |step: Step| {
            let inputs = |Action { stage, kind, micro_batch }: Action| {
                let at = |stage, kind| Action { stage, kind, micro_batch };
                let up = stage + 1;
                match kind {
                    Kind::Forward => stage.checked_sub(1).map(|s| at(s, Kind::Forward)).into_iter().collect(),
                    Kind::Weight => vec![at(stage, Kind::Input)],
                    _ if up == n_stages => vec![at(stage, Kind::Forward)],
                    _ => vec![at(stage, Kind::Forward), at(up, Kind::Backward), at(up, Kind::Input)],
                }
            };
            let wanted: Vec<Action> = step.actions().flat_map(inputs).collect();
            schedule.ranks.iter().flatten().filter(|s| s.actions().any(|a| wanted.contains(&a))).copied().collect()
        };
        for (rank, first, second) in swaps(&schedule.ranks, 3) {
            let mut mutant = schedule.clone();
            mutant.ranks[rank].swap(first, second);
            let result = check(&mutant);
            assert_eq!(result.is_ok(), has_no_circle(&mutant.ranks, needs), "{name}, rank {rank}: {result:?}");
            n_refused += usize::from(result.is_err());
        }
    }
    assert!(n_refused > 100, "{n_refused}");
}

/// Rank and two positions, up to `apart` apart.
fn swaps<T>(lists: &[Vec<T>], apart: usize) -> Vec<(usize, usize, usize)> {
    let of = |(rank, list): (usize, &Vec<T>)| {
        let n = list.len();
        (0..n).flat_map(move |first| (first + 1..n.min(first + 1 + apart)).map(move |second| (rank, first, second)))
    };
    lists.iter().enumerate().flat_map(|(rank, list)| of((rank, list)).collect::<Vec<_>>()).collect()
}

#[test]
fn lowered_tables_without_an_action_are_refused() {
    for (name, schedule) in schedules() {
        let lists = lower(&schedule).unwrap();
        for rank in 0..lists.len() {
            for position in 0..lists[rank].len() {
                let mut mutant = lists.clone();
                let dropped = mutant[rank].remove(position);
                let error = verify(&schedule, &mutant).expect_err(&format!("{name}: {dropped} dropped"));
                assert_eq!(error.rank as usize, rank, "{name}: {dropped} dropped: {error}");
                match (dropped, &error.fault) {
                    (Lowered::Compute(step), Fault::Changed(want)) => assert_eq!(*want, step.to_string()),
                    (Lowered::Send { transfer, .. }, Fault::NotSent(what))
                    | (Lowered::Recv { transfer, .. }, Fault::NotReceived(what)) => {
                        assert_eq!(*what, transfer.to_string());
                        assert!(error.action.contains(['F', 'B', 'I']), "{error}");
                    }
                    _ => panic!("{name}: {dropped} dropped: {error}"),
                }
                mutant[rank].insert(position, dropped);
                mutant[rank].push(dropped);
                let error = verify(&schedule, &mutant).expect_err(&format!("{name}: {dropped} twice"));
                assert_eq!((error.rank as usize, error.position), (rank, lists[rank].len()), "{name}: {error}");
            }
        }
    }
}

#[test]
fn swaps_of_lowered_actions_are_refused_exactly_when_they_close_a_circle() {
    let (mut n_refused, mut n_deadlocks) = (0, 0);
    for row in &SCHEDULES {
        let shape = match row.name {
            "interleaved" => Shape::new(2, 4).chunks(2),
            "dual_pipe" | "dual_pipe_v" => Shape::new(2, 4),
            _ => Shape::new(3, 4),
        };
        let schedule = row.schedule(shape).unwrap();
        let lists = lower(&schedule).unwrap();
        // A transfer is one event of both ranks; what it is needed for, and what makes it, are its rank's.
        let event = |action: Lowered| match action {
            Lowered::Recv { transfer, .. } => Lowered::Send { to: 0, transfer },
            Lowered::Send { transfer, .. } => Lowered::Send { to: 0, transfer },
            compute => compute,
        };
        for (rank, first, second) in swaps(&lists, 4) {
            let mut mutant = lists.clone();
            mutant[rank].swap(first, second);
            let computes = |lists: &[Vec<Lowered>]| -> Vec<Lowered> {
                lists.iter().flatten().filter(|a| matches!(a, Lowered::Compute(_))).copied().collect()
            };
            let in_place = mutant.iter().all(|list| {
                list.iter().enumerate().all(|(position, action)| {
                    let after = |wanted: Lowered| list[position..].contains(&wanted);
                    let mut inputs = action.actions().filter_map(|a| crate::pipeline::lower::incoming(&schedule, a));
                    let mut outputs = action.actions().filter_map(|a| crate::pipeline::lower::outgoing(&schedule, a));
                    let received = !inputs.any(|(from, transfer)| after(Lowered::Recv { from, transfer }));
                    received && outputs.all(|(to, transfer)| after(Lowered::Send { to, transfer }))
                })
            });
            let events: Vec<Vec<Lowered>> =
                mutant.iter().map(|list| list.iter().map(|&a| event(a)).collect()).collect();
            let want = computes(&mutant) == computes(&lists) && in_place && has_no_circle(&events, |_| Vec::new());
            let result = verify(&schedule, &mutant);
            assert_eq!(result.is_ok(), want, "{} rank {rank}, {first} and {second}: {result:?}", row.name);
            n_refused += usize::from(result.is_err());
            n_deadlocks += usize::from(matches!(result, Err(CheckError { fault: Fault::DeadlockTransfer { .. }, .. })));
        }
    }
    assert!(n_refused > 100 && n_deadlocks > 10, "{n_refused}, {n_deadlocks}");
}

#[test]
fn errors_name_rank_position_and_action() {
    let cases = [
        ("0F0, 0F1, 0B0", "rank 0, position 3, 0B1: 0B1 is missing"),
        ("0F0, 0I0", "rank 0, position 1, 0I0: 0W0 is missing"),
        ("0F0, 0W0", "rank 0, position 1, 0W0: 0I0 is missing"),
        ("0B0", "rank 0, position 0, 0B0: 0F0 is missing"),
        ("0F0, 0W0, 0I0", "rank 0, position 1, 0W0: must come after 0I0, which is at position 2"),
        ("0B0, 0F0", "rank 0, position 0, 0B0: must come after 0F0, which is at position 1"),
        ("0F0+0B0", "rank 0, position 0, 0F0+0B0: must come after 0F0, which is at position 0"),
        (
            "0F0, 0B0, 0W0",
            "rank 0, position 2, 0W0: 0B0 at position 1 is there, too: a backward is whole (B) or in halves (I and W)",
        ),
        (
            "0F0, 0I0, 0B0, 0W0",
            "rank 0, position 1, 0I0: 0B0 at position 2 is there, too: a backward is whole (B) or in halves (I and W)",
        ),
        ("placement loop 1\n0F0, 1F0", "rank 0, position 1, 1F0: there are only 1 stages"),
        ("micro_batches 1\n0F0, 0F1", "rank 0, position 1, 0F1: there are only 1 micro-batches"),
        ("placement loop 4000000000 micro_batches 4000000000\n0F0, 0B0", "rank 0, position 2, 0F1: 0F1 is missing"),
        ("placement loop 0\n-", "rank 0, position 0, the table: a schedule needs a rank, a stage and a micro-batch"),
        (
            "0F0, 0F1, 0B1, 0B0\n1F0, 1B0, 1F1, 1B1\n2F0, 2F1, 2B0, 2B1",
            "rank 0, position 2, 0B1: waits for ever for 1B1, position 3 of rank 1, which stands at position 1",
        ),
        ("placement v\n3F0, 0F0\n1F0, 2F0, 2B0, 1B0", "rank 0, position 2, 0B0: 0B0 is missing"),
    ];
    for (table, want) in cases {
        let error = check(&text::parse(table).unwrap()).expect_err(table).to_string();
        assert_eq!(error, want, "{table}");
    }
}

/// 1F1B as one would write it with a blocking send behind each action: the textbook deadlock.
#[test]
fn sends_that_meet_are_found() {
    let schedule = schedule_row("one_f_one_b").unwrap().schedule(Shape::new(2, 3)).unwrap();
    let read = |line: &str| line.split(' ').map(|action| action.parse().unwrap()).collect::<Vec<Lowered>>();
    let lists = [
        read("0F0 0A0>1 0F1 0A1>1 1G0<1 0B0 0F2 0A2>1 1G1<1 0B1 1G2<1 0B2"),
        read("0A0<0 1F0 1B0 1G0>0 0A1<0 1F1 1B1 1G1>0 0A2<0 1F2 1B2 1G2>0"),
    ];
    let want = "rank 0, position 3, 0A1>1: waits for ever for rank 1, which stands at position 3 (1G0>0)";
    assert_eq!(verify(&schedule, &lists).unwrap_err().to_string(), want);
    assert_eq!(ends_with(&lists, Semantics::Buffered), Ok(()), "with buffers it ends");
    let lowered = lower(&schedule).unwrap();
    assert_eq!(
        lowered,
        [lists[0].clone(), read("0A0<0 1F0 0A1<0 1B0 1G0>0 1F1 1B1 0A2<0 1G1>0 1F2 1B2 1G2>0")],
        "the receiver takes what comes before it goes on"
    );
}

/// All interleavings, one state after another: whether some one of them gets stuck, and whether all do.
fn explored(lists: &[Vec<Lowered>], semantics: Semantics) -> (bool, bool) {
    let ends: Vec<usize> = lists.iter().map(Vec::len).collect();
    let (mut todo, mut seen) = (vec![vec![0; lists.len()]], HashSet::new());
    let (mut some_end, mut some_stick) = (false, false);
    while let Some(at) = todo.pop() {
        if !seen.insert(at.clone()) {
            continue;
        }
        some_end |= at == ends;
        let mut can_move = at == ends;
        for rank in 0..lists.len() {
            let Some(&action) = lists[rank].get(at[rank]) else { continue };
            let mut next = at.clone();
            next[rank] += 1;
            match (action, semantics) {
                (Lowered::Compute(_), _) | (Lowered::Send { .. }, Semantics::Buffered) => {}
                (Lowered::Recv { from, transfer }, Semantics::Buffered) => {
                    let send = Lowered::Send { to: rank as u32, transfer };
                    if !lists[from as usize][..at[from as usize]].contains(&send) {
                        continue;
                    }
                }
                (Lowered::Recv { .. }, Semantics::Rendezvous) => continue,
                (Lowered::Send { to, transfer }, Semantics::Rendezvous) => {
                    let recv = Lowered::Recv { from: rank as u32, transfer };
                    if lists[to as usize].get(at[to as usize]) != Some(&recv) {
                        continue;
                    }
                    next[to as usize] += 1;
                }
            }
            can_move = true;
            todo.push(next);
        }
        some_stick |= !can_move;
    }
    (some_end, some_stick)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// One run stands for all: on tables whose order is disturbed at random, too.
    #[test]
    fn one_run_stands_for_all_interleavings(
        which in 0usize..SCHEDULES.len(),
        swaps in prop::collection::vec((any::<Index>(), any::<Index>()), 0..3),
    ) {
        let row = &SCHEDULES[which];
        let shape = match row.name {
            "interleaved" => Shape::new(2, 2).chunks(2),
            "dual_pipe" | "dual_pipe_v" => Shape::new(2, 4),
            _ => Shape::new(3, 3),
        };
        let mut lists = lower(&row.schedule(shape).unwrap()).unwrap();
        for (rank, at) in swaps {
            let list = rank.index(lists.len());
            let list = &mut lists[list];
            let first = at.index(list.len() - 1);
            list.swap(first, first + 1);
        }
        for semantics in [Semantics::Rendezvous, Semantics::Buffered] {
            let ends = ends_with(&lists, semantics).is_ok();
            prop_assert_eq!(explored(&lists, semantics), (ends, !ends), "{} {:?}", row.name, semantics);
        }
    }
}
