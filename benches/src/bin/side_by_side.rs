//! Collectives against Intel MPI, Open MPI, MPICH and gloo: the same loop for each, interleaved, as ratios.
//!
//! `cargo run --release -p paceline-benches --bin side_by_side -- --help`; `docs/side-by-side.md` says more.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use paceline_benches::machine::Machine;
use paceline_benches::matrix::{Call, Cell, ElementType, Group, SIZES, Wire, groups};
use paceline_benches::network::Network;
use paceline_benches::peers::{Library, Missing, Paceline, PeerName, Search, find};
use paceline_benches::process::{Interrupted, Supervisor};
use paceline_benches::results::Results;
use paceline_benches::run::{COPIES, COPY_BYTES, Run};
use paceline_benches::table::{Summary, Table};
use paceline_benches::{Work, chart, csv, worker};

/// Compares paceline's collectives with the libraries that are here.
///
/// In every round each library runs all sizes of a table once, one library after the other; tables hold the medians
/// over the rounds of the slowest rank's time per call. Nothing is installed: libraries that aren't found are named as
/// missing.
#[derive(Parser)]
struct Options {
    /// Everything: all collectives, sizes, types and wires, with 2, 4 and 8 ranks. Takes hours.
    #[arg(long)]
    all: bool,
    /// What to call; all_reduce if not given.
    #[arg(long, value_delimiter = ',')]
    collectives: Vec<Call>,
    /// Sizes in bytes: of the vector, of all ranks' blocks together, or of the message. 8 B to 64 MiB if not given.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    sizes: Vec<u32>,
    /// How many ranks; 2 if not given.
    #[arg(short = 'n', long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(2..=1024))]
    ranks: Vec<u16>,
    /// Types of the elements, for all_reduce; other collectives are compared with f32. f32 if not given.
    #[arg(long, value_delimiter = ',')]
    types: Vec<ElementType>,
    /// How the ranks reach each other; shm if not given.
    #[arg(long, value_delimiter = ',')]
    wires: Vec<Wire>,
    /// How many rounds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// The libraries to look for; all if not given.
    #[arg(long, value_delimiter = ',')]
    peers: Vec<PeerName>,
    /// Where Intel MPI is: the folder that holds `bin/mpiexec.hydra`, such as a Python environment with `impi-rt` and
    /// `impi-devel`. `I_MPI_ROOT` if not given.
    #[arg(long, value_name = "FOLDER")]
    intel_mpi: Option<PathBuf>,
    /// The Python whose PyTorch brings gloo.
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// How long a library may take for one cell in one round, in seconds. Slower ones are noted and not tried again.
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// A file for one line per cell and library.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// A folder for one drawing per table.
    #[arg(long, value_name = "FOLDER")]
    charts: Option<PathBuf>,
    /// Runs as one of paceline's ranks.
    #[arg(long, hide = true)]
    worker: bool,
    /// Runs as so many of paceline's ranks.
    #[arg(long, hide = true, requires = "worker")]
    threads: Option<usize>,
    /// A folder of pipes, one for each rank, by which it is told what else to run.
    #[arg(long, hide = true, requires = "worker", conflicts_with = "threads")]
    orders: Option<PathBuf>,
    /// Runs on registered memory.
    #[arg(long, hide = true, requires = "worker")]
    registered: bool,
    /// What the worker runs.
    #[arg(hide = true, requires = "worker")]
    cells: Vec<Cell>,
}

impl Options {
    /// What was asked for, else everything or the quick set.
    fn choose<T: Clone>(&self, asked: &[T], quick: &[T], all: &[T]) -> Vec<T> {
        let chosen = if !asked.is_empty() {
            asked
        } else if self.all {
            all
        } else {
            quick
        };
        chosen.to_vec()
    }

    fn work(&self) -> Work {
        let Options { cells, orders, threads, registered, .. } = self;
        Work { cells: cells.clone(), orders: orders.clone(), threads: *threads, registered: *registered }
    }

    fn groups(&self) -> Vec<Group> {
        let wires = self.choose(&self.wires, &[Wire::Shm], Wire::value_variants());
        let ranks: Vec<usize> = self.choose(&self.ranks, &[2], &[2, 4, 8]).into_iter().map(usize::from).collect();
        let calls = self.choose(&self.collectives, &[Call::AllReduce], Call::value_variants());
        let types = self.choose(&self.types, &[ElementType::F32], ElementType::value_variants());
        groups(&wires, &ranks, &calls, &types)
    }

    fn sizes(&self) -> Vec<usize> {
        let sizes: Vec<usize> = self.sizes.iter().map(|bytes| *bytes as usize).collect();
        if sizes.is_empty() { SIZES.to_vec() } else { sizes }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let ended = if options.worker { worker(&options.work()) } else { compare(&options) };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("side_by_side: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(options: &Options) -> Result<(), String> {
    let mut tables = options.groups();
    if tables.is_empty() {
        return Err("nothing to compare: types other than f32 are for all_reduce; add f32 to --types".into());
    }
    prepare_outputs(options)?;
    let supervisor = Supervisor::of_program().map_err(|error| format!("catching signals: {error}"))?;
    let folder = tempfile::Builder::new().prefix("paceline-side-by-side-").tempdir();
    let folder = folder.map_err(|error| format!("no folder for the peers' programs: {error}"))?;
    let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
    let names = if options.peers.is_empty() { PeerName::value_variants() } else { &options.peers[..] };
    let search = Search { intel_mpi: options.intel_mpi.clone(), python: options.python.clone(), folder: folder.path() };
    let (found, missing) = find(names, &search);
    let mut libraries: Vec<Box<dyn Library>> = vec![Box::new(Paceline::new(program))];
    libraries.extend(found);

    let machine = Machine::here();
    println!("{machine}\n");
    list(&libraries, &missing);
    let network = if tables.iter().any(|table| table.wire == Wire::Tcp) {
        Network::make(folder.path()).inspect_err(|why| println!("- tcp: skipped ({why})")).ok()
    } else {
        None
    };
    tables.retain(|table| table.wire != Wire::Tcp || network.is_some());
    let run = Run {
        libraries: &libraries,
        network: network.as_ref(),
        supervisor: &supervisor,
        rounds: options.rounds.into(),
        limit: Duration::from_secs(options.limit),
        cores: machine.cores,
    };
    let mut results = Results::new(libraries.iter().map(|library| library.name()).collect());
    let ended = measure(&run, &tables, &options.sizes(), &mut results);
    println!(
        "\n## Summary\n\nBest peer / paceline, above 1 where paceline is quicker.\n\n{}",
        Summary { results: &results }
    );
    write_outputs(options, &results, &libraries, &machine)?;
    ended.map_err(|Interrupted| "interrupted; what was measured until then is above".into())
}

fn list(libraries: &[Box<dyn Library>], missing: &[Missing]) {
    for library in libraries {
        println!("- {}: {}", library.name(), library.version().unwrap_or("version unknown"));
    }
    for Missing { name, why } in missing {
        println!("- {name}: missing ({why})");
    }
}

/// Runs and prints each table, and what share of the memory's rate large all_reduces reach.
fn measure(run: &Run, tables: &[Group], sizes: &[usize], results: &mut Results) -> Result<(), Interrupted> {
    for &group in tables {
        let (cells, skipped) = group.cells(sizes, run.cores);
        let ended = run.table(group, &cells, results);
        println!("\n## {group}\n\n{}", Table { results, group });
        if !skipped.is_empty() {
            let skipped: Vec<String> = skipped.iter().map(ToString::to_string).collect();
            println!("- skipped, less than one element for each rank: {} bytes", skipped.join(", "));
        }
        let notes = run.libraries.iter().filter_map(|library| library.note(group.wire));
        notes.for_each(|note| println!("- {note}"));
        ended?;
    }
    let large = |group: &&Group| group.call == Call::AllReduce && results.entry(**group, COPY_BYTES, 0).is_some();
    let large: Vec<&Group> = tables.iter().filter(large).collect();
    if large.is_empty() {
        return Ok(());
    }
    println!("\n## All-reduce against copies\n");
    let copy_us = match run.copies()? {
        Ok(us) => us,
        Err(why) => {
            println!("{COPIES} processes that copy failed: {why}\n");
            return Ok(());
        }
    };
    let gb_per_s = |us: f64| COPY_BYTES as f64 / us / 1e3;
    let rate = gb_per_s(copy_us);
    println!("{COPIES} processes that copy {COPY_BYTES} bytes at once, without a library: {rate:.2} GB/s each.\n");
    for group in large {
        let Some(us) = results.entry(*group, COPY_BYTES, 0).and_then(|entry| entry.median_us()) else { continue };
        println!("- {group}: {:.2} GB/s, {:.0} % of that", gb_per_s(us), 100.0 * copy_us / us);
    }
    println!();
    Ok(())
}

/// What can't be written is to be known before hours of measuring.
fn prepare_outputs(options: &Options) -> Result<(), String> {
    let told = |path: &Path, error| format!("{} can't be written: {error}", path.display());
    if let Some(file) = &options.csv {
        std::fs::File::create(file).map_err(|error| told(file, error))?;
    }
    if let Some(folder) = &options.charts {
        std::fs::create_dir_all(folder).map_err(|error| told(folder, error))?;
    }
    Ok(())
}

fn write_outputs(
    options: &Options,
    results: &Results,
    libraries: &[Box<dyn Library>],
    machine: &Machine,
) -> Result<(), String> {
    if let Some(file) = &options.csv {
        let versions: Vec<_> = libraries.iter().map(|library| library.version().map(str::to_owned)).collect();
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let to = std::fs::File::create(file).map_err(|error| told(&error))?;
        csv::write(to, results, &versions, machine).map_err(|error| told(&error))?;
    }
    if let Some(folder) = &options.charts {
        for group in results.groups() {
            chart::draw(results, group, folder)?;
        }
    }
    Ok(())
}
