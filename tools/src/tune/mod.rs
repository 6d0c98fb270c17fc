//! `paceline tune`: which rows are the quickest between the present ranks, measured and kept as a profile.

mod bench;
mod check;
mod choose;
mod predict;
mod prices;
mod show;
mod survey;
mod write;

use std::path::PathBuf;
use std::process::ExitCode;

use paceline_comm::{Communicator, Environment, ProfilePlace, Setup};

use crate::perf::arguments::size;

pub use bench::Effort;

/// The most ranks that are made in one process.
const THREADS_MAX: u64 = 128;

/// Measure which algorithms are the quickest between these ranks, and write it to this host's profile
///
/// Start it as the job would be: `paceline launch -n 4 -- paceline tune`, or under any launcher. The profile is at
/// PACELINE_PROFILE or, without that, in the user's cache; what it holds for other links and numbers of ranks stays.
#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    /// Ranks as threads of each process, instead of one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=THREADS_MAX))]
    pub threads: Option<u64>,
    /// Fewer sizes and repetitions; with --check, fewer repetitions
    #[arg(long)]
    pub quick: bool,
    /// Print what was measured and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Where to write the profile
    #[arg(short, long, value_name = "PATH", conflicts_with = "dry_run")]
    pub output: Option<PathBuf>,
    /// Write nothing: time every algorithm, print what is chosen now beside the quickest, and fail if it is anywhere over
    /// 15 % slower
    #[arg(long, conflicts_with_all = ["dry_run", "output"])]
    pub check: bool,
    /// Write nothing: time every algorithm, and print what it was predicted to take beside what it takes
    #[arg(long, conflicts_with_all = ["dry_run", "output", "check"])]
    pub predict: bool,
    /// With --check and --predict: at these sizes of the whole message; K and M are binary
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = checkable)]
    pub sizes: Vec<usize>,
}

/// The largest message that is checked.
const CHECKED_MAX: u64 = 1 << 30;

fn checkable(text: &str) -> Result<usize, String> {
    match size(text)? {
        bytes if bytes <= CHECKED_MAX => Ok(bytes as usize),
        bytes => Err(format!("{bytes} bytes are more than {CHECKED_MAX}")),
    }
}

/// What a rank has to say, and whether all is well.
struct Outcome {
    text: String,
    sound: bool,
}

/// Runs the command on all ranks of this process; rank 0 prints.
#[must_use]
pub fn main(arguments: &Arguments) -> ExitCode {
    match run(arguments) {
        Ok(Outcome { text, sound }) => {
            print!("{text}");
            if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(why) => {
            eprintln!("paceline tune: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<Outcome, String> {
    let mut setup = Setup::from_env(&Environment::from_process()).map_err(|error| error.to_string())?;
    let mut place = setup.profile.path().map(PathBuf::from);
    if !arguments.check && !arguments.predict {
        // What is measured must not depend on what was measured before.
        (setup.profile, setup.algorithm) = (ProfilePlace::Nowhere, None);
    }
    if arguments.output.is_some() {
        place.clone_from(&arguments.output);
    }
    if place.is_none() && !arguments.check && !arguments.predict && !arguments.dry_run {
        return Err("there is no place for a profile: pass --output, or set PACELINE_PROFILE to a path".to_owned());
    }
    let threads = arguments.threads.unwrap_or(1) as usize;
    let ranks = Communicator::connect_threads(&setup, threads).map_err(|error| error.to_string())?;
    if ranks[0].size() < 2 {
        return Err("one rank has nothing to choose: start several, as in paceline launch -n 2 -- paceline tune, or \
                    pass --threads 2"
            .to_owned());
    }
    let work = |comm: Communicator| match arguments {
        Arguments { check: true, .. } => check(&comm, arguments),
        Arguments { predict: true, .. } => predict(&comm, arguments),
        _ => tune(&comm, arguments, &place),
    };
    let ends: Vec<Result<Outcome, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = ranks.into_iter().map(|comm| scope.spawn(|| work(comm))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a rank panicked".to_owned()))).collect()
    });
    let first = Outcome { text: String::new(), sound: true };
    ends.into_iter().try_fold(first, |all, end| {
        let end = end?;
        Ok(Outcome { text: all.text + &end.text, sound: all.sound && end.sound })
    })
}

fn tune(comm: &Communicator, arguments: &Arguments, place: &Option<PathBuf>) -> Result<Outcome, String> {
    let effort = if arguments.quick { Effort::QUICK } else { Effort::FULL };
    let survey = survey::survey(comm, effort).map_err(|error| error.to_string())?;
    let prices = prices::of(&survey, comm);
    let profile = survey.profile(comm, prices.as_ref().ok().copied());
    let mut text = String::new();
    if comm.rank() == 0 {
        text = show::profile(&profile, prices.as_ref().err());
    }
    if let Some(path) = place.as_ref().filter(|_| comm.local_rank() == 0 && !arguments.dry_run) {
        let notes = write::merge_into(path, profile)?;
        if comm.rank() == 0 {
            text += &format!("{notes}written to {}\n", path.display());
        }
    }
    Ok(Outcome { text, sound: true })
}

fn check(comm: &Communicator, arguments: &Arguments) -> Result<Outcome, String> {
    let effort = if arguments.quick { Effort::QUICK } else { Effort::CHECK };
    let checked = check::check(comm, effort, &arguments.sizes).map_err(|error| error.to_string())?;
    let text = if comm.rank() == 0 { check::text(comm, &checked) } else { String::new() };
    Ok(Outcome { text, sound: !checked.iter().any(|one| one.slow) })
}

fn predict(comm: &Communicator, arguments: &Arguments) -> Result<Outcome, String> {
    let effort = if arguments.quick { Effort::QUICK } else { Effort::CHECK };
    let predicted = predict::predict(comm, effort, &arguments.sizes).map_err(|error| error.to_string())?;
    let text = if comm.rank() == 0 { predict::text(comm, &predicted) } else { String::new() };
    Ok(Outcome { text, sound: true })
}
