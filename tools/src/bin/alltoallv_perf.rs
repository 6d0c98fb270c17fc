//! Measures `alltoallv`: every rank sends every rank a block, of differing sizes.

use std::process::ExitCode;

use paceline_tools::perf::{benchmark::ALLTOALLV, main as perf};

fn main() -> ExitCode {
    perf(ALLTOALLV)
}
