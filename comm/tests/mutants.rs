//! A check of the checker: whatever single number or kind is changed in a row's programs, the proof fails.

use std::collections::HashMap;

use paceline_comm::algorithm::{ROWS, Row};
use paceline_comm::schedule::check::{Mode, prove};
use paceline_comm::schedule::{Buffer, Program, Span, Step, input};

/// The spans that differ from `span` in one number or in the buffer.
fn spans(span: Span, numbers: &[u32]) -> Vec<Span> {
    let mut all = Vec::new();
    for number in numbers.iter().copied() {
        all.push(Span { first: number, ..span });
        all.push(Span { skip: number, ..span });
        all.push(Span { count: number, ..span });
        all.push(Span { like: number, ..span });
        // A number of a span outside scratch is two fields: change them together as well.
        all.push(Span { first: number, like: number, ..span });
    }
    for buffer in [Buffer::Input, Buffer::Output, Buffer::Scratch] {
        all.push(Span { buffer, ..span });
        all.push(Span { buffer, skip: 0, like: span.first + span.skip, first: span.first + span.skip, ..span });
        all.push(Span { buffer, skip: 0, first: span.like, ..span });
    }
    all
}

/// The steps that differ from `step` in one number or in the kind.
fn mutants_of(step: Step, numbers: &[u32]) -> Vec<Step> {
    use Step::{Copy, Recv, RecvReduce, Reduce, Send};
    let each = |span: Span, with: &dyn Fn(Span) -> Step| spans(span, numbers).into_iter().map(with).collect::<Vec<_>>();
    let peers = |with: &dyn Fn(u32) -> Step| numbers.iter().copied().map(with).collect::<Vec<_>>();
    let mut all = match step {
        Send { to, source } => [
            peers(&|to| Send { to, source }),
            each(source, &|source| Send { to, source }),
            vec![Recv { from: to, target: source }, RecvReduce { from: to, source, target: source }],
            vec![Copy { source, target: source }],
        ]
        .concat(),
        Recv { from, target } => [
            peers(&|from| Recv { from, target }),
            each(target, &|target| Recv { from, target }),
            vec![Send { to: from, source: target }, RecvReduce { from, source: target, target }],
            vec![Copy { source: target, target }],
        ]
        .concat(),
        RecvReduce { from, source, target } => [
            peers(&|from| RecvReduce { from, source, target }),
            each(source, &|source| RecvReduce { from, source, target }),
            each(target, &|target| RecvReduce { from, source, target }),
            vec![Send { to: from, source }, Send { to: from, source: target }, Recv { from, target }],
            vec![Recv { from, target: source }, Copy { source, target }],
        ]
        .concat(),
        Copy { source, target } => [
            each(source, &|source| Copy { source, target }),
            each(target, &|target| Copy { source, target }),
            peers(&|from| RecvReduce { from, source, target }),
            peers(&|from| Recv { from, target }),
            peers(&|to| Send { to, source }),
            peers(&|runs| Reduce { source, runs, target }),
            vec![Copy { source: target, target }],
        ]
        .concat(),
        Reduce { source, runs, target } => [
            peers(&|runs| Reduce { source, runs, target }),
            each(source, &|source| Reduce { source, runs, target }),
            each(target, &|target| Reduce { source, runs, target }),
            vec![Copy { source, target }, Copy { source: target, target }],
        ]
        .concat(),
    };
    all.retain(|other| *other != step);
    all.sort_unstable();
    all.dedup();
    all
}

/// The program with every read of a plain copy of the input turned into a read of the input, and, where all blocks are
/// equally long, without saying as long as which block a span of scratch is.
///
/// Two programs of one canonical form do the same. This follows a rank's own copies only, without the checker.
fn canonical(program: &Program, is_even: bool) -> Vec<Vec<Step>> {
    let mut copies: HashMap<Cell, u32> = HashMap::new();
    let plain = |span: Span| if is_even && span.buffer == Buffer::Scratch { Span { like: 0, ..span } } else { span };
    let mut rounds = Vec::new();
    for steps in program.rounds() {
        let read = |span: Span| {
            let from_input = |offset| copies.get(&Cell::of(span.part(offset, 1))).copied();
            match from_input(0) {
                Some(first) if (0..span.count).all(|offset| from_input(offset) == Some(first + offset)) => {
                    input(first).run(span.count)
                }
                _ => plain(span),
            }
        };
        let canonical = |step: &Step| match *step {
            Step::Send { to, source } => Step::Send { to, source: read(source) },
            Step::Recv { from, target } => Step::Recv { from, target: plain(target) },
            Step::RecvReduce { from, source, target } => {
                Step::RecvReduce { from, source: read(source), target: plain(target) }
            }
            Step::Copy { source, target } => Step::Copy { source: read(source), target: plain(target) },
            Step::Reduce { source, runs, target } => {
                Step::Reduce { source: plain(source), runs, target: plain(target) }
            }
        };
        let round: Vec<Step> = steps.iter().map(canonical).collect();
        for step in &round {
            let (source, target) = match *step {
                Step::Send { .. } => continue,
                Step::Recv { target, .. } | Step::RecvReduce { target, .. } | Step::Reduce { target, .. } => {
                    (None, target)
                }
                Step::Copy { source, target } => (Some(source).filter(|s| s.buffer == Buffer::Input), target),
            };
            if target.buffer == Buffer::Scratch {
                copies.retain(|cell, _| cell.buffer != Buffer::Scratch || !cell.may_lie_under(target));
            }
            for offset in 0..target.count {
                let cell = Cell::of(target.part(offset, 1));
                match source {
                    Some(source) => copies.insert(cell, source.first + offset),
                    None => copies.remove(&cell),
                };
            }
        }
        rounds.push(round);
    }
    rounds
}

/// Where one chunk lies.
#[derive(PartialEq, Eq, Hash)]
struct Cell {
    buffer: Buffer,
    /// Where the run that it is part of begins.
    first: u32,
    number: u32,
}

impl Cell {
    fn of(span: Span) -> Cell {
        Cell { buffer: span.buffer, first: span.first, number: span.first + span.skip }
    }

    /// A packed run's bytes lie between the start of its first slot and the end of its last one.
    fn may_lie_under(&self, span: Span) -> bool {
        self.first < span.end() && span.first <= self.number
    }
}

/// What became of the mutants of a row's programs.
#[derive(Default)]
struct Tally {
    rejected: usize,
    /// Those that pass and do the same.
    same: usize,
    /// Those that pass and do not.
    survivors: Vec<String>,
}

fn try_all(row: &Row, n: u32, root: u32, tally: &mut Tally) {
    let mode = Mode { in_place: false, uneven: row.uneven };
    let mut programs = row.programs(n, root);
    let most = programs.iter().map(|p| p.chunks.max(p.scratch).max(n)).max().unwrap_or(0);
    let numbers: Vec<u32> = (0..=most + 1).chain([u32::MAX]).collect();
    for me in 0..n as usize {
        let original: Program = programs[me].clone();
        for round in 0..original.n_rounds() {
            for (index, step) in original.steps_of(round).iter().enumerate() {
                for mutant in mutants_of(*step, &numbers) {
                    programs[me] = original.with_step(round, index, mutant);
                    if prove(row.collective, &programs, mode).is_err() {
                        tally.rejected += 1;
                    } else if canonical(&programs[me], !row.uneven) == canonical(&original, !row.uneven) {
                        tally.same += 1;
                    } else {
                        let (collective, name) = (row.collective, row.name);
                        let place = format!("n = {n}, root {root}, rank {me}, round {round}");
                        tally.survivors.push(format!("{collective} {name}, {place}: {step} became {mutant}"));
                    }
                }
            }
        }
        programs[me] = original;
    }
}

#[test]
fn no_mutant_passes() {
    let mut tally = Tally::default();
    for row in ROWS {
        for n in [4, 5, 8] {
            try_all(row, n, if row.collective.has_root() { n - 3 } else { 0 }, &mut tally);
        }
    }
    let Tally { rejected, same, survivors } = tally;
    println!("{rejected} mutants are rejected, {same} do the same as the original, {} survive", survivors.len());
    assert!(rejected > 300_000, "only {rejected} mutants were tried");
    assert!(survivors.is_empty(), "{} mutants pass:\n{}", survivors.len(), survivors.join("\n"));
}
