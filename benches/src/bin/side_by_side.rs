//! All-reduce against Intel MPI, Open MPI and MPICH: the same loop for each, interleaved, as ratios.
//!
//! `cargo run --release -p paceline-benches --bin side_by_side -- --help`

use std::process::{Command, ExitCode};

use clap::Parser;
use paceline_benches::{Peer, Table, find_peers, run_paceline, work_list};

/// Compares paceline's all_reduce (f32, sum, out of place, one host) with the MPI libraries that are here.
///
/// Every round runs each library once over all sizes, one after the other; the table holds the medians over the rounds.
/// Nothing is installed: libraries that aren't found are named as missing. A small C program is compiled for each.
#[derive(Parser)]
struct Options {
    /// How many processes.
    #[arg(short = 'n', long, default_value_t = 2)]
    ranks: usize,
    /// How many rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Sizes in bytes, in place of 8 B to 64 MiB.
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<usize>,
    /// Where Intel MPI is: the folder that holds `bin/mpirun`, such as a Python environment with `impi-rt` and
    /// `impi-devel`. `I_MPI_ROOT` if not given.
    #[arg(long)]
    intel_mpi: Option<std::path::PathBuf>,
    /// Runs as one of paceline's ranks.
    #[arg(long, hide = true)]
    worker: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let sizes = if options.sizes.is_empty() { paceline_benches::SIZES.to_vec() } else { options.sizes.clone() };
    if options.worker {
        return match paceline_benches::worker(&work_list(&sizes)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("side_by_side: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let peers = find_peers(options.intel_mpi.as_deref());
    let mut table = Table::new(&sizes);
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        let mut worker = Command::new(std::env::current_exe().expect("this program has a path"));
        let list: Vec<String> = sizes.iter().map(ToString::to_string).collect();
        worker.args(["--worker", "--sizes", &list.join(",")]);
        table.add("paceline", run_paceline(worker, options.ranks));
        for peer in &peers {
            if let Peer::Found(mpi) = peer {
                table.add(mpi.name, mpi.run(options.ranks, &work_list(&sizes)));
            }
        }
    }
    for peer in &peers {
        if let Peer::Missing { name, why } = peer {
            println!("{name}: missing ({why})");
        }
    }
    println!("{table}");
    ExitCode::SUCCESS
}
