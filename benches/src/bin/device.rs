//! Collectives over memory of GPUs, against what their memory allows, and NCCL.
//!
//! `cargo run --release -p paceline-benches --bin device -- --help`; `docs/performance.md` says what is measured.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use paceline_benches::device::{Line, LocalCell, Nccl, Part, Report, Sizes, Way, by_cell, local, ranks};
use paceline_benches::machine::Machine;
use paceline_benches::process::{Interrupted, Job, Limits, Supervisor};
use paceline_transport::cuda::Device;

/// Until a worker's first number, and between two.
const LIMITS: Limits = Limits { start: Duration::from_secs(60), cell: Duration::from_secs(60) };

/// Measures on GPUs: the memory's rate, reductions against it, and all_reduce between ranks that are threads or processes, on
/// the devices and by the host, against the bytes that it moves; and NCCL where it runs.
///
/// Without a device it says `not run` and why, and the status is 0.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    sizes: Sizes,
    /// How many ranks; 2, 4 and 8 if not given. More than there are devices share them.
    #[arg(short = 'n', long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(2..=16))]
    ranks: Vec<u16>,
    /// As what ranks run; both if not given.
    #[arg(long, value_delimiter = ',')]
    kinds: Vec<Kind>,
    /// Only this; everything if not given.
    #[arg(long)]
    only: Option<Only>,
    /// Writes everything here, too, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The Python that calls NCCL.
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// NCCL's library; if not given, that of the Python's nvidia-nccl-cu12, or the system's.
    #[arg(long, value_name = "FILE")]
    nccl: Option<PathBuf>,
    /// Runs as a worker.
    #[arg(long, hide = true)]
    worker: Option<Part>,
    /// As so many ranks that are threads.
    #[arg(long, hide = true)]
    threads: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Threads,
    Processes,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Only {
    /// One device: copies and sums.
    Local,
    /// all_reduce between ranks.
    Ranks,
    /// NCCL.
    Nccl,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let ended = match options.worker {
        Some(Part::Local) => local(&options.sizes),
        Some(Part::Ranks) => ranks(&options.sizes, options.threads),
        None => measure(&options),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("device: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The devices' names, or why there are none.
fn devices() -> Result<Vec<String>, String> {
    let count = Device::count().map_err(|error| error.to_string())?;
    let name = |ordinal| {
        let device = Device::open(ordinal).map_err(|error| error.to_string())?;
        let (major, minor) = device.architecture();
        let (gib, name) = (device.total_memory() >> 30, device.name());
        Ok(format!(
            "device {ordinal}: {name}, {gib} GiB, {} multiprocessors, sm_{major}{minor}",
            device.multiprocessors()
        ))
    };
    (0..count).map(name).collect()
}

fn measure(options: &Options) -> Result<(), String> {
    let devices = match devices() {
        Ok(devices) if !devices.is_empty() => devices,
        Ok(_) => return not_run("the driver has none"),
        Err(reason) => return not_run(&reason),
    };
    let bench = Bench {
        options,
        program: std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?,
        supervisor: Supervisor::of_program().map_err(|error| format!("catching signals: {error}"))?,
    };
    let sizes = options.sizes.clone();
    let machine = Machine::here().to_string();
    let (local, blocks, lines, skipped) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut report = Report { machine, devices, sizes, local, blocks, lines, skipped };
    bench.run(&mut report).map_err(|Interrupted| "interrupted".to_owned())?;
    println!("{report}");
    if let Some(path) = &options.json {
        std::fs::write(path, format!("{:#}\n", report.json()))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if report.is_whole() { Ok(()) } else { Err("not everything could be measured".to_owned()) }
}

fn not_run(reason: &str) -> Result<(), String> {
    println!("not run: no device ({reason})");
    Ok(())
}

struct Bench<'a> {
    options: &'a Options,
    program: PathBuf,
    supervisor: Supervisor,
}

impl Bench<'_> {
    fn run(&self, report: &mut Report) -> Result<(), Interrupted> {
        let wants = |part| self.options.only.is_none_or(|only| only == part);
        if wants(Only::Local) {
            self.local(report)?;
        }
        let all = [2, 4, 8];
        let counts = if self.options.ranks.is_empty() { &all[..] } else { &self.options.ranks[..] };
        let kinds = if self.options.kinds.is_empty() { Kind::value_variants() } else { &self.options.kinds[..] };
        for n in counts.iter().map(|n| usize::from(*n)) {
            for kind in kinds.iter().filter(|_| wants(Only::Ranks)) {
                self.ranks(report, n, *kind)?;
            }
            if wants(Only::Nccl) {
                self.nccl(report, n)?;
            }
        }
        Ok(())
    }

    fn local(&self, report: &mut Report) -> Result<(), Interrupted> {
        let cells = LocalCell::all();
        let (rounds, sums) = (self.options.sizes.rounds(), cells.len() - 3);
        let job = Job { commands: vec![("the worker".to_owned(), self.worker(Part::Local))] };
        let outcomes = self.supervisor.run(job, sums + rounds * cells.len(), LIMITS)?;
        let (blocks, numbers) = outcomes.split_at(sums.min(outcomes.len()));
        report.blocks = by_cell(blocks, sums, 1);
        // What ended the worker before its first round ended that, too.
        let numbers = if numbers.is_empty() { &blocks[blocks.len().saturating_sub(1)..] } else { numbers };
        report.local = cells.iter().copied().zip(by_cell(numbers, cells.len(), rounds)).collect();
        Ok(())
    }

    fn ranks(&self, report: &mut Report, n: usize, kind: Kind) -> Result<(), Interrupted> {
        let sizes = &self.options.sizes;
        let meeting = format!("local://device-{}-{n}-{}", std::process::id(), kind as u8);
        let processes = if kind == Kind::Threads { 1 } else { n };
        let command = |rank: usize| {
            let mut command = self.worker(Part::Ranks);
            command.env("PACELINE_RENDEZVOUS", &meeting).env("PACELINE_RANK", rank.to_string());
            command.env("PACELINE_SIZE", processes.to_string()).env("PACELINE_LAUNCHER", "paceline");
            if kind == Kind::Threads {
                command.args(["--threads", &n.to_string()]);
            }
            (format!("rank {rank}"), command)
        };
        let job = Job { commands: (0..processes).map(command).collect() };
        let vectors = sizes.vectors();
        let cells = vectors.len() * Way::ALL.len() * Way::NUMBERS;
        let outcomes = self.supervisor.run(job, cells * sizes.rounds(), LIMITS)?;
        let mut numbers = by_cell(&outcomes, cells, sizes.rounds()).into_iter();
        for bytes in vectors {
            for way in Way::ALL {
                let mut next = || numbers.next().expect("a cell for each number");
                let (device_us, wall_us) = (next(), next());
                let kind = if kind == Kind::Threads { "threads" } else { "processes" };
                report.lines.push(Line { ranks: n, kind, way: Some(way), bytes, device_us, wall_us });
            }
        }
        Ok(())
    }

    fn nccl(&self, report: &mut Report, n: usize) -> Result<(), Interrupted> {
        let folder = match tempfile::Builder::new().prefix("paceline-device-").tempdir() {
            Ok(folder) => folder,
            Err(error) => {
                report.skipped.push(format!("NCCL between {n} ranks: no folder for its program: {error}"));
                return Ok(());
            }
        };
        let nccl = Nccl { python: self.options.python.clone(), library: self.options.nccl.clone() };
        match nccl.run(folder.path(), n, &self.options.sizes, &self.supervisor, LIMITS)? {
            Err(reason) => report.skipped.push(reason),
            Ok(numbers) => {
                let mut numbers = numbers.into_iter();
                for bytes in self.options.sizes.vectors() {
                    let mut next = || numbers.next().expect("a cell for each number");
                    let (device_us, wall_us) = (next(), next());
                    report.lines.push(Line { ranks: n, kind: "nccl", way: None, bytes, device_us, wall_us });
                }
            }
        }
        Ok(())
    }

    /// This program as a worker, with as many queues to a device as there may be: ranks of one process, whose kernels wait for
    /// each other, must not wait for each other's queues. Kernels are loaded at once, since loading one later waits for the
    /// device.
    fn worker(&self, part: Part) -> Command {
        let mut command = Command::new(&self.program);
        let name = part.to_possible_value().expect("no part is hidden");
        command.args(["--worker", name.get_name()]).args(self.options.sizes.words());
        command.env("CUDA_DEVICE_MAX_CONNECTIONS", "32").env("CUDA_MODULE_LOADING", "EAGER");
        for name in ["PACELINE_LOCAL_RANK", "PACELINE_LOCAL_SIZE", "PACELINE_JOB", "PACELINE_INTERFACE"] {
            command.env_remove(name);
        }
        command
    }
}
