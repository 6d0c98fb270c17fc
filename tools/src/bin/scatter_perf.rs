//! Measures `scatter`: every rank gets its block from the root.

use std::process::ExitCode;

use paceline_tools::perf::{benchmark::SCATTER, main as perf};

fn main() -> ExitCode {
    perf(SCATTER)
}
