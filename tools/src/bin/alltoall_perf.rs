//! Measures `alltoall`: every rank sends every rank a block.

use std::process::ExitCode;

use paceline_tools::perf::{benchmark::ALLTOALL, main as perf};

fn main() -> ExitCode {
    perf(ALLTOALL)
}
