//! The `*_perf` family: nccl-tests' command line, table, formulas and exit codes over this library.
//!
//! A tool is a row of [`benchmark`]; everything else is shared. [`main`] reads the [command line](arguments), joins the
//! other ranks and hands its own to [`run`], which gives each a thread. A rank goes through its sizes ([`rank`]), and for
//! each ([`row`]) runs an [`operation`] on a [`workbench`] under the [clock](measure) and then against the
//! [expected result](verify). Rank 0 [reports](report).

pub mod arguments;
pub mod benchmark;
pub mod buffers;
pub mod collect;
pub mod comm;
pub mod environment;
pub mod failure;
pub mod findings;
pub mod json;
pub mod layout;
pub mod machine;
pub mod measure;
pub mod names;
pub mod number;
pub mod operation;
pub mod plan;
pub mod rank;
pub mod report;
pub mod row;
pub mod run;
pub mod sizes;
pub mod statistics;
pub mod table;
pub mod traffic;
pub mod verify;
pub mod watchdog;
pub mod workbench;

use std::process::ExitCode;

use arguments::{Asked, Options};
use benchmark::Benchmark;
use environment::Environment;
use failure::Failure;
use plan::Plan;

/// Runs a tool from its process's command line and environment.
#[must_use]
pub fn main(benchmark: Benchmark) -> ExitCode {
    match start(benchmark) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("{}: {failure}", benchmark.name);
            if let Failure::Usage(_) = failure {
                eprintln!("{} --help lists the options", benchmark.name);
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

fn start(benchmark: Benchmark) -> Result<u8, Failure> {
    let options = match Options::parse(std::env::args_os())? {
        Asked::Run(options) => *options,
        Asked::Help(text) => {
            print!("{text}");
            return Ok(failure::RIGHT);
        }
    };
    let environment = Environment::read(|name| std::env::var(name).ok())?;
    crate::log::begin().map_err(Failure::Usage)?;
    let comms = comm::library::join(&options)?;
    let plan = Plan { benchmark, options, environment };
    let arguments = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    Ok(run::run(&plan, comms, arguments, Box::new(std::io::stdout())))
}
