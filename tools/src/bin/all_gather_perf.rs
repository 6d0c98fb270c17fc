//! Measures `all_gather`: every rank gets all ranks' blocks.

use std::process::ExitCode;

use paceline_tools::perf::{benchmark::ALL_GATHER, main as perf};

fn main() -> ExitCode {
    perf(ALL_GATHER)
}
