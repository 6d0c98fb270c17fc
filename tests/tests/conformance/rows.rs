//! The rows against the plain fold.

use std::time::Instant;

use crate::runner::run;
use crate::sample::{few, product, sample};

#[test]
fn rows_give_what_a_plain_fold_gives() {
    let seed = paceline_tests::seed();
    let (cases, size) = match ["PACELINE_FULL", "PACELINE_TEST_FEW"].map(paceline_tests::is_asked_for) {
        [true, _] => (product(seed), "PACELINE_FULL=1 "),
        [_, true] => (few(seed), "PACELINE_TEST_FEW=1 "),
        _ => (sample(seed), ""),
    };
    let begin = Instant::now();
    let wrong = run(&cases);
    println!("{} cases took {:.1} s", cases.len(), begin.elapsed().as_secs_f64());
    let again = format!("PACELINE_SEED={seed} {size}cargo test -p paceline-tests --test conformance rows");
    assert!(wrong.is_empty(), "{} failures; repeat with {again}\n{}", wrong.len(), wrong.join("\n"));
}
