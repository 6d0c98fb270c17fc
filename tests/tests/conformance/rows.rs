//! The rows against the plain fold.

use std::time::Instant;

use crate::runner::run;
use crate::sample::{product, sample};

#[test]
fn rows_give_what_a_plain_fold_gives() {
    let seed = paceline_tests::seed();
    let full = paceline_tests::is_asked_for("PACELINE_FULL");
    let cases = if full { product(seed) } else { sample(seed) };
    let begin = Instant::now();
    let wrong = run(&cases);
    println!("{} cases took {:.1} s", cases.len(), begin.elapsed().as_secs_f64());
    let again = format!(
        "PACELINE_SEED={seed} {}cargo test -p paceline-tests --test conformance rows",
        if full { "PACELINE_FULL=1 " } else { "" }
    );
    assert!(wrong.is_empty(), "{} failures; repeat with {again}\n{}", wrong.len(), wrong.join("\n"));
}
