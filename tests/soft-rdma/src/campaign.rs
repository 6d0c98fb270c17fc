//! The suites in a guest, reported on this machine, one line for each test.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::cache;
use crate::cargo::cargo;
use crate::error::{Error, Result};
use crate::guest::Guest;
use crate::report::{Heard, Totals};
use crate::suite::{PROGRAMS, SUITES, Says, Suite, parse, script};

#[derive(Args)]
pub struct Campaign {
    /// The kind of link that the tests run on.
    #[arg(long, default_value = "rdma")]
    links: String,
    /// Features of paceline-tests and paceline-tools.
    #[arg(long, default_value = "")]
    features: String,
    /// Only the suites whose names contain this.
    #[arg(long, default_value = "")]
    only: String,
    /// Seconds after which the guest is killed.
    #[arg(long, default_value_t = 170)]
    deadline: u64,
}

/// Runs the suites; says `skipped` and why if this machine can't make a guest.
///
/// # Errors
///
/// If the tests don't build, or the guest doesn't work.
pub fn run(options: &Campaign) -> Result<ExitCode> {
    let suites: Vec<Suite> = SUITES.into_iter().filter(|suite| suite.name.contains(&options.only)).collect();
    if suites.is_empty() {
        return Err(Error::Failed(format!("no suite's name contains {}", options.only)));
    }
    if let Err(Error::Missing(why)) = Guest::prepare(&cache()) {
        println!("skipped: {why}");
        return Ok(ExitCode::SUCCESS);
    }
    let mut tests = vec!["test", "--no-run", "-p", "paceline-tests", "--features", &options.features];
    tests.extend(PROGRAMS.iter().flat_map(|program| ["--test", program]));
    let mut programs = cargo(tests)?;
    programs.extend(cargo(["build", "-p", "paceline-tools", "--bins", "--features", &options.features])?);

    let deadline = Duration::from_secs(options.deadline);
    let guest = Guest { programs, ..Guest::new(script(&suites, &options.links), deadline) };
    let (mut totals, mut next, mut heard) = (Totals::default(), 0, Heard::default());
    let ended = guest.run(&cache(), |line| match parse(line) {
        Some(Says::Begins(number)) => {
            next = number;
            heard = Heard::default();
        }
        Some(Says::Ended(status)) => {
            totals.tell(&suites[next], &heard, Some(status));
            next += 1;
            heard = Heard::default();
        }
        None => heard.line(line),
    });
    if let Err(error) = &ended {
        heard.line(&error.to_string());
    }
    for suite in suites.get(next..).unwrap_or_default() {
        totals.tell(suite, &heard, None);
        heard = Heard::default();
    }
    if let Ok(ended) = ended {
        println!("the guest took {:.0?} to boot and {:.0?} in all", ended.boot, ended.whole);
    }
    let (words, is_well) = totals.conclude();
    println!("{words}");
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
