//! Measures `hypercube`: every rank gets all ranks' blocks, by exchanges along the edges of a hypercube.

use std::process::ExitCode;

use paceline_tools::perf::{benchmark::HYPERCUBE, main as perf};

fn main() -> ExitCode {
    perf(HYPERCUBE)
}
