//! Real verbs in a guest with soft-RoCE: see `docs/testing.md`.

mod archive;
mod campaign;
mod cargo;
mod command;
mod error;
mod guest;
mod image;
mod kernel;
mod measure;
mod report;
mod suite;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use cargo::cargo;
use error::{Doing, Result};
use guest::{Ended, Guest};

/// Real verbs in a guest with soft-RoCE.
#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Boots a guest, runs a shell script in it, and ends with the script's exit status.
    Boot(Boot),
    /// Runs the tests that need real verbs in a guest, and reports each of them.
    Test(campaign::Campaign),
    /// Compares paceline with perftest and Open MPI on the same device, by turns.
    Measure(measure::Measure),
}

#[derive(Args)]
struct Boot {
    /// A program that the guest has in /paceline; a test (in a folder `deps`) in /paceline/deps, without its hash.
    #[arg(long = "with", value_name = "PROGRAM")]
    with: Vec<PathBuf>,
    /// What `cargo WORDS` builds: `test --no-run -p paceline-tests --test links`, say, or `build -p paceline-tools`.
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    cargo: Vec<String>,
    /// Another file, folder or program, and where it lies in the guest: HOST=GUEST.
    #[arg(long, value_name = "HOST=GUEST", value_parser = pair)]
    file: Vec<(PathBuf, PathBuf)>,
    /// Memory of the guest, in MiB.
    #[arg(long, default_value_t = 3072)]
    memory: u32,
    /// MTU of eth0, in bytes: 1500 gives RoCE 1024, 4200 gives 4096.
    #[arg(long, default_value_t = 4200)]
    mtu: u32,
    /// Two guests, a and b, that are joined by a network and both run the script; GUEST_NAME says which one it is.
    #[arg(long)]
    pair: bool,
    /// Seconds after which a guest is killed.
    #[arg(long, default_value_t = 170)]
    deadline: u64,
    /// The script, run by busybox's sh.
    script: PathBuf,
}

fn pair(text: &str) -> std::result::Result<(PathBuf, PathBuf), String> {
    let (host, guest) = text.split_once('=').ok_or("it must be HOST=GUEST")?;
    Ok((host.into(), guest.into()))
}

/// Where downloads and images are kept.
fn cache() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies in the workspace");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from).join("soft-rdma")
}

fn main() -> ExitCode {
    let Options { what } = Options::parse();
    let ended = match what {
        What::Boot(options) => boot(&options),
        What::Test(options) => campaign::run(&options),
        What::Measure(options) => measure::run(&options),
    };
    match ended {
        Ok(code) => code,
        Err(error) => {
            eprintln!("soft-rdma: {error}");
            ExitCode::from(125)
        }
    }
}

fn boot(options: &Boot) -> Result<ExitCode> {
    let script = std::fs::read_to_string(&options.script).doing(format!("reading {}", options.script.display()))?;
    let (mut programs, files) = (options.with.clone(), options.file.clone());
    for words in &options.cargo {
        programs.extend(cargo(words.split_whitespace())?);
    }
    let guest = Guest::new(script, Duration::from_secs(options.deadline));
    let guest = Guest { memory_mib: options.memory, mtu: options.mtu, programs, files, ..guest };
    let cache = cache();
    if options.pair {
        return boot_pair(&guest, &cache);
    }
    let ended = guest.run(&cache, |line| println!("{line}"))?;
    Ok(tell("the guest", ended))
}

/// Both guests' output, each line behind the guest's name; the status is the worse one.
fn boot_pair(guest: &Guest, cache: &Path) -> Result<ExitCode> {
    Guest::prepare(cache)?;
    let folder = tempfile::tempdir().doing("making a folder for the network")?;
    let guests = guest.pair(&folder.path().join("network"));
    let ends = std::thread::scope(|scope| {
        let run = |name, guest: &Guest| guest.run(cache, |line| println!("{name}: {line}"));
        let threads = ["a", "b"].iter().zip(&guests).map(|(name, guest)| scope.spawn(move || run(name, guest)));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().expect("a guest's thread")).collect::<Result<Vec<Ended>>>()
    })?;
    let worse = ends.into_iter().max_by_key(|ended| ended.status).expect("there are two");
    Ok(tell("the guest that fared worse", worse))
}

fn tell(name: &str, ended: Ended) -> ExitCode {
    let Ended { status, boot, whole } = ended;
    eprintln!("soft-rdma: {name}: status {status}, {boot:.1?} to boot, {whole:.1?} in all");
    u8::try_from(status).map_or(ExitCode::FAILURE, ExitCode::from)
}
