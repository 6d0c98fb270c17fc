//! Measures `sendrecv`: every rank sends to the next one.

use std::process::ExitCode;

use paceline_tools::perf::{benchmark::SENDRECV, main as perf};

fn main() -> ExitCode {
    perf(SENDRECV)
}
