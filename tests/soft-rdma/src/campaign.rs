//! The suites in a guest or two, reported on this machine, one line for each test.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

use crate::cache;
use crate::cargo::cargo;
use crate::command::find;
use crate::error::{Doing, Error, Result};
use crate::guest::{Ended, Guest};
use crate::report::{Heard, Totals};
use crate::suite::{FULL, PAIR, PROGRAMS, SUITES, Says, Suite, pair_script, parse, script};

/// Which tests, and on what.
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
    /// Two guests that are joined by a network, with half of the ranks on each, instead of one guest.
    #[arg(long)]
    pair: bool,
    /// The whole of conformance instead, which takes long.
    #[arg(long, conflicts_with = "pair")]
    full: bool,
    /// Seconds after which a guest is killed.
    #[arg(long, default_value_t = 480, default_value_if("full", "true", "3200"))]
    deadline: u64,
}

/// Runs the suites; says `skipped` and why if this machine can't make a guest.
///
/// # Errors
///
/// If the tests don't build.
pub fn run(options: &Campaign) -> Result<ExitCode> {
    let ready = Guest::prepare(&cache()).map(drop).and_then(|()| can_build(&options.features));
    match ready {
        Err(Error::Missing(why)) => {
            println!("skipped: {why}");
            return Ok(ExitCode::SUCCESS);
        }
        ready => ready?,
    }
    let programs = cargo(words(&options.features).iter().map(String::as_str))?;

    let guest = Guest { programs, ..Guest::new(String::new(), Duration::from_secs(options.deadline)) };
    let mut totals = Totals::default();
    if options.pair {
        run_pair(options, &guest, &mut totals)?
    } else {
        run_one(options, guest, &mut totals)?
    }
    let (words, is_well) = totals.conclude();
    println!("{words}");
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What builds the tests and the tools: one command for both, so that what they use is built once.
fn words(features: &str) -> Vec<String> {
    let of_both = |feature: &str| ["paceline-tests", "paceline-tools"].map(|name| format!("{name}/{feature}"));
    let features: Vec<String> = features.split(',').filter(|name| !name.is_empty()).flat_map(of_both).collect();
    let packages = ["test", "--no-run", "-p", "paceline-tests", "-p", "paceline-tools", "--features"];
    let mut words: Vec<String> = packages.map(str::to_owned).into();
    words.push(features.join(","));
    // A test of the tools brings the tools.
    words.extend(PROGRAMS.iter().chain(&["perf"]).flat_map(|program| ["--test".to_owned(), (*program).to_owned()]));
    words
}

/// Whether the crates that call verbs can be built here.
fn can_build(features: &str) -> Result<()> {
    if !features.contains("rdma") {
        return Ok(());
    }
    find("cmake", "cmake")?;
    let header = std::path::Path::new("/usr/include/infiniband/verbs.h");
    if header.is_file() {
        Ok(())
    } else {
        Err(Error::Missing("no headers of libibverbs (apt-get install libibverbs-dev)".into()))
    }
}

fn run_one(options: &Campaign, guest: Guest, totals: &mut Totals) -> Result<()> {
    let known = if options.full { &FULL[..] } else { &SUITES };
    let suites: Vec<Suite> = known.iter().copied().filter(|suite| suite.name.contains(&options.only)).collect();
    if suites.is_empty() {
        return Err(Error::Failed(format!("no suite's name contains {}", options.only)));
    }
    let guest = Guest { script: script(&suites, &options.links), ..guest };
    let (mut next, mut heard, mut begun) = (0, Heard::default(), Instant::now());
    let ended = guest.run(&cache(), |line| match parse(line) {
        Some(Says::Begins(number)) => {
            next = number;
            heard = Heard::default();
            begun = Instant::now();
        }
        Some(Says::Ended(status)) => {
            totals.tell(&suites[next], &heard, Some(status));
            println!("{} took {:.0?}", suites[next].name, begun.elapsed());
            next += 1;
            heard = Heard::default();
        }
        None => heard.line(line),
    });
    tell_end("the guest", &ended, &mut heard);
    for suite in suites.get(next..).unwrap_or_default() {
        totals.tell(suite, &heard, None);
        heard = Heard::default();
    }
    Ok(())
}

fn run_pair(options: &Campaign, guest: &Guest, totals: &mut Totals) -> Result<()> {
    let folder = tempfile::tempdir().doing("making a folder for the network")?;
    let guest = Guest { script: pair_script(&options.links), ..guest.clone() };
    let guests = guest.pair(&folder.path().join("network"));
    let ends = std::thread::scope(|scope| {
        let run = |guest: &Guest| {
            let mut heard = Heard::default();
            let ended = guest.run(&cache(), |line| heard.line(line));
            (ended, heard)
        };
        let threads: Vec<_> = guests.iter().map(|guest| scope.spawn(move || run(guest))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a guest's thread")).collect::<Vec<_>>()
    });
    for (suite, (ended, mut heard)) in PAIR.iter().zip(ends) {
        tell_end(suite.name, &ended, &mut heard);
        totals.tell(suite, &heard, ended.ok().map(|ended| ended.status));
    }
    Ok(())
}

/// Says how long a guest took, or lets `heard` say what went wrong with it.
fn tell_end(name: &str, ended: &Result<Ended>, heard: &mut Heard) {
    match ended {
        Ok(ended) => println!("{name} took {:.0?} to boot and {:.0?} in all", ended.boot, ended.whole),
        Err(error) => heard.line(&error.to_string()),
    }
}
