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

use arguments::{Asked, Options, Place};
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
    let on_devices = on_devices(&options)?;
    let comms = comm::library::join(&options)?;
    let plan = Plan { benchmark, options, environment };
    let arguments = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let out = Box::new(std::io::stdout());
    #[cfg(feature = "cuda")]
    if on_devices {
        return Ok(run::run(&plan, comm::device::attach(comms, &plan.options)?, arguments, out));
    }
    debug_assert!(!on_devices, "a build without devices has refused to use them");
    Ok(run::run(&plan, comms, arguments, out))
}

/// Whether the buffers are in memory of devices.
fn on_devices(options: &Options) -> Result<bool, Failure> {
    let on_devices = match options.place {
        Place::Cpu => false,
        Place::Cuda => true,
        #[cfg(feature = "cuda")]
        Place::Auto => paceline_comm::cuda::Device::count().is_ok_and(|count| count > 0),
        #[cfg(not(feature = "cuda"))]
        Place::Auto => false,
    };
    if options.graph_launches > 0 && !on_devices {
        let why = "-G (--cudagraph) captures calls over memory of GPUs, and there is none here";
        return Err(Failure::NotInThisBuild(why.to_string()));
    }
    if options.windows && !on_devices {
        let why = "-R 2 (--local_register) has all ranks read each other's buffers on GPUs, and there is none here; -R 1 has memory";
        return Err(Failure::NotInThisBuild(format!("{why} of the host registered")));
    }
    if options.copy_engines && !on_devices {
        let why = "-x 2 (--cta_policy) leaves calls to the copy engines of GPUs, and there is none here";
        return Err(Failure::NotInThisBuild(why.to_string()));
    }
    Ok(on_devices)
}
