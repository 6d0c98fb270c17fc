//! What communication adds to a training step's time, against what it may add.
//!
//! `cargo run --release -p paceline-benches --bin step_time -- --help`; `docs/performance.md` has a run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use paceline_benches::machine::Machine;
use paceline_benches::matrix::Wire;
use paceline_benches::network::Network;
use paceline_benches::peers::{Paceline, Place};
use paceline_benches::process::{Interrupted, Job, Limits, Outcome, Supervisor};
use paceline_benches::step_time::{Case, RANKS, Report, Samples, Sizes, Torch, columns, worker, write_csv};

/// How long libraries may take to start, and for a round.
const LIMITS: Limits = Limits { start: Duration::from_secs(120), cell: Duration::from_secs(60) };
/// Rounds by which the link's rate is chosen.
const ROUNDS_BEFORE: u32 = 7;

/// Measures what communication adds to a training step's time.
///
/// Two processes with one thread each for computing. Kinds of steps take turns; a number is the median over all rounds of
/// the slower rank's.
#[derive(Parser)]
struct Options {
    /// What to measure; all if nothing is given.
    cases: Vec<Case>,
    #[command(flatten)]
    sizes: Sizes,
    /// The link's rate in Mbit/s; if not given, one at which communication takes half as long as the backward pass.
    #[arg(long)]
    rate_mbit: Option<f64>,
    /// How often processes are started anew for a case, each time for all rounds.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    turns: u16,
    /// Measures PyTorch's DDP over gloo, too.
    #[arg(long)]
    torch: bool,
    /// The Python that has PyTorch.
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// Writes all numbers here, too.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Runs as one of paceline's ranks.
    #[arg(long, hide = true)]
    worker: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let ended = match options.cases[..] {
        [case] if options.worker => worker(case, &options.sizes),
        _ => compare(&options),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("step_time: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What cases run with.
struct Bench<'a> {
    options: &'a Options,
    supervisor: Supervisor,
    paceline: Paceline,
    torch: Option<Torch>,
}

fn compare(options: &Options) -> Result<(), String> {
    let supervisor = Supervisor::of_program().map_err(|error| format!("catching signals: {error}"))?;
    let folder = tempfile::Builder::new().prefix("paceline-step-time-").tempdir();
    let folder = folder.map_err(|error| format!("no folder for programs and meetings: {error}"))?;
    let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
    let machine = Machine::here();
    println!("{machine}\n");
    let torch = if options.torch {
        let found = Torch::find(&options.python, folder.path());
        found.inspect_err(|why| println!("- PyTorch: missing ({why})")).ok()
    } else {
        None
    };
    torch.iter().for_each(|torch| println!("- gloo: {}", torch.version()));
    let bench = Bench { options, supervisor, paceline: Paceline::new(program), torch };
    let cases = if options.cases.is_empty() { Case::value_variants() } else { &options.cases[..] };
    let (mut reports, mut link) = (Vec::new(), None);
    for case in cases {
        if case.wire() == Wire::Tcp && link.is_none() {
            link = Some(bench.link(folder.path())?);
        }
        let report = match (case.wire(), &link) {
            (Wire::Tcp, Some(Err(why))) => {
                println!("{}: skipped: {why}", case.name());
                continue;
            }
            (Wire::Tcp, Some(Ok((network, rate)))) => bench.run(*case, Some((network, *rate)))?,
            _ => bench.run(*case, None)?,
        };
        println!("{report}");
        reports.push(report);
    }
    if let Some(path) = &options.csv {
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let file = std::fs::File::create(path).map_err(|error| told(&error))?;
        write_csv(file, &reports, &machine).map_err(|error| told(&error))?;
    }
    let failed = reports.iter().filter(|report| report.samples.is_err()).count();
    if failed > 0 { Err(format!("{failed} cases could not be measured")) } else { Ok(()) }
}

impl Bench<'_> {
    /// A limited link and its rate in Mbit/s, or why there is none.
    fn link(&self, folder: &Path) -> Result<Result<(Network, f64), String>, String> {
        let network = match Network::make(folder) {
            Ok(network) => network,
            Err(why) => return Ok(Err(why)),
        };
        let rate = match self.options.rate_mbit {
            Some(rate) => rate,
            None => self.rate()?,
        };
        Ok(network.limit(&format!("{:.0}kbit", 1e3 * rate)).map(|()| (network, rate)))
    }

    /// The rate in Mbit/s at which adding all gradients takes half as long as the backward pass. Between two ranks, each
    /// sends as many bytes as there are.
    fn rate(&self) -> Result<f64, String> {
        let sizes = Sizes { rounds: ROUNDS_BEFORE, ..self.options.sizes.clone() };
        let samples = self.measure(Case::DdpShm, &sizes, None).map_err(interrupted)?;
        let samples = samples.map_err(|outcome| format!("choosing the link's rate: {outcome:?}"))?;
        Ok(8.0 * sizes.gradient_bytes() as f64 / (samples.median("backward") / 2.0))
    }

    fn run(&self, case: Case, link: Option<(&Network, f64)>) -> Result<Report, String> {
        let sizes = &self.options.sizes;
        let network = link.map(|(network, _)| network);
        let torch = self.torch.as_ref().filter(|_| case.has_peer());
        let (mut ours, mut theirs) = (None, None);
        for _ in 0..self.options.turns {
            join(&mut ours, self.measure(case, sizes, network).map_err(interrupted)?);
            if let Some(torch) = torch {
                let job = torch.job(&place(case, network), sizes);
                join(&mut theirs, self.read(job, torch.columns(), sizes).map_err(interrupted)?);
            }
        }
        let samples = ours.expect("at least one turn");
        let rate_mbit = link.map(|(_, rate)| rate);
        Ok(Report { case, sizes: sizes.clone(), rate_mbit, samples, peer: theirs })
    }

    /// Paceline's rounds.
    fn measure(
        &self,
        case: Case,
        sizes: &Sizes,
        network: Option<&Network>,
    ) -> Result<Result<Samples, Outcome>, Interrupted> {
        let mut words = sizes.words();
        words.push(case.name().to_owned());
        let mut job = self.paceline.workers(&place(case, network), &words);
        for (_, command) in &mut job.commands {
            command.env("RAYON_NUM_THREADS", "1").env("CANDLE_NUM_THREADS", "1");
        }
        self.read(job, columns(case), sizes)
    }

    fn read(
        &self,
        job: Job,
        columns: Vec<&'static str>,
        sizes: &Sizes,
    ) -> Result<Result<Samples, Outcome>, Interrupted> {
        let rounds = sizes.rounds as usize;
        let outcomes = self.supervisor.run(job, rounds * columns.len(), LIMITS)?;
        Ok(Samples::read(&outcomes, columns, rounds))
    }
}

fn interrupted(Interrupted: Interrupted) -> String {
    "interrupted".to_owned()
}

fn place<'a>(case: Case, network: Option<&'a Network>) -> Place<'a> {
    Place { wire: case.wire(), ranks: RANKS, network }
}

/// Adds a turn's rounds; a failure stays.
fn join(all: &mut Option<Result<Samples, Outcome>>, turn: Result<Samples, Outcome>) {
    match (all, turn) {
        (Some(Ok(all)), Ok(turn)) => all.extend(turn),
        (Some(Err(_)), _) => {}
        (all, turn) => *all = Some(turn),
    }
}
