//! Measures `reduce_scatter`: every rank gets its block of the reduction.

use std::process::ExitCode;

use paceline_tools::perf::{benchmark::REDUCE_SCATTER, main as perf};

fn main() -> ExitCode {
    perf(REDUCE_SCATTER)
}
