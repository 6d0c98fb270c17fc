//! Measures `broadcast`: every rank gets the root's vector.

use std::process::ExitCode;

use paceline_tools::perf::{benchmark::BROADCAST, main as perf};

fn main() -> ExitCode {
    perf(BROADCAST)
}
