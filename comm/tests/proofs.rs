//! Every row is proved: for every number of ranks from 1 to 64, in every mode that it declares.

use paceline_comm::algorithm::ROWS;
use paceline_comm::schedule::check::prove_row;

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
                if let Err((mode, error)) = prove_row(row, n, root) {
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
