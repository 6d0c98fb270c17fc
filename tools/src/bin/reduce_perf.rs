//! Measures `reduce`: the root gets the reduction of all ranks' vectors.

use std::process::ExitCode;

use paceline_tools::perf::{benchmark::REDUCE, main as perf};

fn main() -> ExitCode {
    perf(REDUCE)
}
