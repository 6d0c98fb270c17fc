//! Trains a small GPT on a text, in any layout of data, sharded, tensor, sequence and pipeline parallel.
//!
//! ```text
//! cargo run --release -p paceline-parallel --example train_gpt
//! cargo run --release -p paceline-parallel --example train_gpt -- --ranks 4 --dp 2 --tp 2
//! cargo run --release -p paceline-parallel --example train_gpt -- --fsdp 4 --zero 3 --svg loss.svg
//! ```
//!
//! [`options`] is the command line, [`plan`] what follows from it, [`launch`] starts the ranks of this host, [`run`] is what
//! each of them does. [`text`] has the samples, [`speed`] counts operations, [`report`] and [`curve`] show what comes of it.
//! `docs/parallel.md` shows each layout.

mod curve;
mod launch;
mod options;
mod plan;
mod report;
mod run;
mod speed;
mod text;

use std::process::ExitCode;

use clap::Parser;
use paceline_comm::{Communicator, Environment, Setup};

use options::Options;
use plan::Plan;

/// What any part may fail with.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let options = Options::parse();
    match start(&options) {
        Ok(code) => code,
        Err((who, error)) => {
            eprintln!("train_gpt: {who}{error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts the ranks, or is one; errors with who has them.
fn start(options: &Options) -> Result<ExitCode, (String, Failure)> {
    let nobody = |error: Failure| (String::new(), error);
    launch::end_with_launcher().map_err(nobody)?;
    let plan = Plan::new(options).map_err(|why| nobody(why.into()))?;
    let setup = Setup::from_env(&Environment::from_process()).map_err(|error| nobody(error.into()))?;
    if setup.size == 1 && plan.layout.ranks() > 1 {
        return launch::launch(plan.layout.ranks()).map_err(nobody);
    }
    let mine = |error: Failure| (format!("rank {}: ", setup.rank), error);
    if setup.size != plan.layout.ranks() {
        let (layout, ranks, size) = (&plan.layout, plan.layout.ranks(), setup.size);
        return Err(mine(format!("the options make {ranks} ranks ({layout}), and {size} were started").into()));
    }
    let comm = Communicator::connect(&setup).map_err(|error| mine(error.into()))?;
    run::run(comm, plan, options).map_err(mine)?;
    Ok(ExitCode::SUCCESS)
}
