//! Measures `gather`: the root gets all ranks' blocks.

use std::process::ExitCode;

use paceline_tools::perf::{benchmark::GATHER, main as perf};

fn main() -> ExitCode {
    perf(GATHER)
}
