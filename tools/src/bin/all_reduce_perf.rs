//! Measures `all_reduce`: every rank gets the reduction of all ranks' vectors.

use std::process::ExitCode;

use paceline_tools::perf::{benchmark::ALL_REDUCE, main as perf};

fn main() -> ExitCode {
    perf(ALL_REDUCE)
}
