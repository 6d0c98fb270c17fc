//! Every row is proved: for every number of ranks from 1 to 64, in every mode that it declares.

use paceline_comm::algorithm::{ROWS, Row, row};
use paceline_comm::collective::Collective;
use paceline_comm::schedule::Program;
use paceline_comm::schedule::check::{Mode, prove};

/// All roots for few ranks; for many, those next to the ends, in the middle, and one that is nothing in particular.
fn roots(has_root: bool, n: u32) -> Vec<u32> {
    let mut roots = match n {
        _ if !has_root => vec![0],
        0..=9 => (0..n).collect(),
        _ => vec![0, 1, n / 2, n / 3 + 1, n - 1],
    };
    roots.sort_unstable();
    roots.dedup();
    roots
}

fn prove_all(sizes: impl Iterator<Item = u32> + Clone) {
    let mut failures = Vec::new();
    for row in ROWS {
        for n in sizes.clone().filter(|n| (row.fits)(*n)) {
            for root in roots(row.collective.has_root(), n) {
                if let Err((mode, error)) = row.prove(n, root) {
                    failures.push(format!("{} {}, n = {n}, root {root}, {mode:?}: {error}", row.collective, row.name));
                }
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} proofs fail, the first:\n{}",
        failures.len(),
        failures[..failures.len().min(20)].join("\n")
    );
}

#[test]
fn every_row_for_1_to_64_ranks() {
    prove_all(1..=64);
}

#[test]
fn every_row_for_some_larger_numbers_of_ranks() {
    prove_all([65, 96, 100, 127, 128, 129].into_iter());
}

#[test]
fn levels_of_every_group_size() {
    for row in ROWS.iter().filter(|row| row.name == "two_level") {
        for n in 1..=36 {
            for group in (1..=n).filter(|group| n % group == 0) {
                let programs: Vec<_> = (0..n).map(|me| row.program_in_groups(me, n, 0, group)).collect();
                for in_place in [false, true] {
                    let mode = Mode { in_place, uneven: true };
                    let proof = prove(row.collective, &programs, mode);
                    assert!(proof.is_ok(), "{}, n = {n}, group {group}, {mode:?}: {proof:?}", row.collective);
                }
            }
        }
    }
}

#[test]
fn a_ring_of_256_is_proved_in_seconds() {
    let ring = row(Collective::AllReduce, "ring").expect("there is a ring");
    let start = std::time::Instant::now();
    let proof = ring.prove(256, 0).expect("the ring is right");
    assert_eq!((proof.n_rounds, proof.n_messages), (510, 256 * 510));
    println!("a ring of 256, out of place and in place: {:?}", start.elapsed());
    assert!(start.elapsed().as_secs() < 30, "took {:?}", start.elapsed());
}

/// Whether a row's programs have a number of steps that grows with the logarithm of the number of ranks.
fn is_logarithmic(row: &Row) -> bool {
    const LOGARITHMIC: [&str; 7] =
        ["recursive_doubling", "halving_doubling", "circulant", "double_tree", "binomial", "bruck", "dissemination"];
    LOGARITHMIC.contains(&row.name) && !(row.name == "bruck" && row.collective == Collective::AllToAll)
}

#[test]
fn one_rank_writes_its_program_without_looking_at_the_others() {
    let least_of = |write: &dyn Fn() -> usize| {
        let time = |_| {
            let start = std::time::Instant::now();
            let n_steps = write();
            (start.elapsed(), n_steps)
        };
        (0..5).map(time).min().expect("five tries")
    };
    let n_steps = |program: &Program| program.rounds().map(<[_]>::len).sum::<usize>();
    for row in ROWS {
        let (n, most) = if is_logarithmic(row) { (131_072 - 3, 150) } else { (16_384, 9 * 16_384) };
        for me in [0, n / 3, n - 1].into_iter().filter(|_| !(row.name == "bruck" && n == 16_384)) {
            let (took, n_steps) = least_of(&|| n_steps(&row.program(me, n, 0)));
            println!("{} {}, n = {n}, rank {me}: {n_steps} steps, {took:?}", row.collective, row.name);
            assert!(n_steps <= most, "{} {}, n = {n}, rank {me}: {n_steps} steps", row.collective, row.name);
            assert!(took.as_millis() < 50, "{} {}, n = {n}, rank {me}: took {took:?}", row.collective, row.name);
        }
    }
}
