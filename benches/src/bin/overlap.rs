//! How much of an all_reduce's time is hidden behind computing, over a link of limited rate.
//!
//! `cargo run --release -p paceline-benches --bin overlap -- --help`; `docs/performance.md` has a run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use paceline_benches::machine::Machine;
use paceline_benches::matrix::{Call, Cell, ElementType, Wire};
use paceline_benches::network::Network;
use paceline_benches::overlap::{Sample, Table};
use paceline_benches::peers::{Library, Missing, Paceline, PeerName, Place, Search, find};
use paceline_benches::process::{Interrupted, Limits, Outcome, Supervisor};
use paceline_benches::{Work, worker};

/// How long libraries may take to start, and for a round.
const LIMITS: Limits = Limits { start: Duration::from_secs(60), cell: Duration::from_secs(120) };
const RANKS: usize = 2;

/// Measures how much of an all_reduce's time is hidden behind computing.
///
/// Two ranks, in turns: the blocking call; computing for as long, which touches no library; and the started call, the same
/// computing, and the wait. Hidden is 1 - (both - computing) / call, of the medians over the rounds of the slowest rank's
/// times.
#[derive(Parser)]
struct Options {
    /// The vector's size in bytes.
    #[arg(long, default_value_t = 64 << 20, value_parser = clap::value_parser!(u32).range(8..))]
    bytes: u32,
    /// How the ranks reach each other. The rate is limited over tcp only.
    #[arg(long, default_value = "tcp")]
    links: Links,
    /// The rate of the link between the two hosts, each way, in words of `tc`.
    #[arg(long, default_value = "500mbit")]
    rate: String,
    /// How many rounds.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Other libraries to measure, one after the other; none if not given.
    #[arg(long, value_delimiter = ',')]
    peers: Vec<PeerName>,
    /// Where Intel MPI is, as for `side_by_side`.
    #[arg(long, value_name = "FOLDER")]
    intel_mpi: Option<PathBuf>,
    /// The Python whose PyTorch brings gloo.
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// Runs as one of paceline's ranks.
    #[arg(long, hide = true)]
    worker: bool,
    /// What the worker runs.
    #[arg(hide = true, requires = "worker")]
    cells: Vec<Cell>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Links {
    Tcp,
    Shm,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let ended = if options.worker {
        worker(&Work { cells: options.cells.clone(), ..Work::default() })
    } else {
        compare(&options)
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("overlap: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(options: &Options) -> Result<(), String> {
    let supervisor = Supervisor::of_program().map_err(|error| format!("catching signals: {error}"))?;
    let folder = tempfile::Builder::new().prefix("paceline-overlap-").tempdir();
    let folder = folder.map_err(|error| format!("no folder for the peers' programs: {error}"))?;
    let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
    let network = match options.links {
        Links::Shm => None,
        Links::Tcp => match limited_network(folder.path(), &options.rate) {
            Ok(network) => Some(network),
            Err(why) => {
                println!("skipped: {why}");
                return Ok(());
            }
        },
    };
    let search = Search { intel_mpi: options.intel_mpi.clone(), python: options.python.clone(), folder: folder.path() };
    let (found, missing) = find(&options.peers, &search);
    let mut libraries: Vec<Box<dyn Library>> = vec![Box::new(Paceline::new(program))];
    libraries.extend(found);

    println!("{}\n", Machine::here());
    for library in &libraries {
        println!("- {}: {}", library.name(), library.version().unwrap_or("version unknown"));
    }
    for Missing { name, why } in missing {
        println!("- {name}: missing ({why})");
    }
    let (bytes, rounds) = (options.bytes as usize, usize::from(options.rounds));
    let cell = Cell { call: Call::Overlap, element: ElementType::F32, bytes, iterations: rounds };
    let wire = if network.is_some() { Wire::Tcp } else { Wire::Shm };
    let place = Place { wire, ranks: RANKS, network: network.as_ref() };
    let mut lines = Vec::new();
    for library in &libraries {
        let interrupted = |Interrupted| "interrupted".to_owned();
        let measured = run(library.as_ref(), &place, cell, &supervisor).map_err(interrupted)?;
        lines.push((library.name(), measured));
    }
    let limited = network.map(|_| format!(" limited to {}", options.rate)).unwrap_or_default();
    println!("\n## all_reduce f32, {bytes} bytes, {RANKS} ranks, {}{limited}, {rounds} rounds\n", wire.name());
    println!("{}", Table { lines: &lines });
    for (name, samples) in &lines {
        if let Ok(samples) = samples {
            let median = Sample::median(samples);
            let rate = bytes as f64 * 8.0 / median.blocking;
            let shares: Vec<String> = samples.iter().map(|sample| format!("{:.0}", 100.0 * sample.hidden())).collect();
            println!(
                "- {name}: the blocking call sends {rate:.0} Mbit/s each way; hidden in each round: {} %",
                shares.join(", ")
            );
        }
    }
    Ok(())
}

fn limited_network(folder: &Path, rate: &str) -> Result<Network, String> {
    let network = Network::make(folder)?;
    network.limit(rate)?;
    Ok(network)
}

/// A library's rounds, if it ran them over the cable that it was given.
fn run(
    library: &dyn Library,
    place: &Place,
    cell: Cell,
    supervisor: &Supervisor,
) -> Result<Result<Vec<Sample>, Outcome>, Interrupted> {
    let crossed = || place.network.map_or(Ok(u64::MAX), Network::crossed_bytes).map_err(Outcome::Failed);
    let before = place.network.map_or(Ok(0), Network::crossed_bytes).map_err(Outcome::Failed);
    let numbers = cell.iterations * Sample::NUMBERS;
    let outcomes = supervisor.run(library.job(place, &[cell]), numbers, LIMITS)?;
    let check = || {
        let samples = Sample::read(&outcomes, cell.iterations)?;
        let (crossed, least) = (crossed()? - before?, 2 * cell.crossing_bytes(RANKS));
        if crossed < least {
            let why = format!("{crossed} bytes went over the cable, less than the {least} there were to move");
            return Err(Outcome::Failed(why));
        }
        Ok(samples)
    };
    Ok(check())
}
