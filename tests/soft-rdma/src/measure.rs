//! paceline's times on soft-RoCE against perftest's and Open MPI's over UCX, taken by turns in one guest.
//!
//! The processor is emulated, so only ratios mean anything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Args;

use crate::cache;
use crate::cargo::cargo;
use crate::command::{find, output};
use crate::error::{Doing, Error, Result};
use crate::guest::Guest;

/// How long, and on what.
#[derive(Args)]
pub struct Measure {
    /// The kind of link that paceline takes.
    #[arg(long, default_value = "rdma")]
    links: String,
    /// Features of paceline-benches.
    #[arg(long, default_value = "")]
    features: String,
    /// How often everything is measured; medians count.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Seconds after which the guest is killed.
    #[arg(long, default_value_t = 1200)]
    deadline: u64,
}

/// Microseconds by library, for each call, number of ranks and bytes.
type Times = BTreeMap<(String, usize, usize), BTreeMap<String, Vec<f64>>>;

/// Measures, and prints medians and ratios; a ratio above 1 says that paceline is quicker.
///
/// # Errors
///
/// If something doesn't build, or the guest doesn't work.
pub fn run(options: &Measure) -> Result<ExitCode> {
    let Measure { links, features, rounds, deadline } = options;
    find("ib_write_bw", "perftest")?;
    Guest::prepare(&cache())?;
    let words = ["build", "--release", "-p", "paceline-benches", "--features", features, "--bin", "side_by_side"];
    let mut programs = cargo(words)?;
    let folder = tempfile::tempdir().doing("making a folder for the peer's program")?;
    let (mpi, files) = match open_mpi(folder.path()) {
        Ok((program, files)) => {
            programs.push(program);
            ("MPI=yes", files)
        }
        Err(why) => {
            println!("skipped: Open MPI: {why}");
            ("MPI=", Vec::new())
        }
    };
    let script = format!("ROUNDS={rounds} LINKS={links} {mpi}\n{}", include_str!("../guest/measure.sh"));
    let guest = Guest { programs, files, ..Guest::new(script, Duration::from_secs(*deadline)) };
    let mut times = Times::new();
    let ended = guest.run(&cache(), |line| match line.strip_prefix("@value ") {
        Some(value) => add(&mut times, value),
        None => println!("{line}"),
    });
    print!("{}", table(&times));
    ended.map(|ended| if ended.status == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The loop of `side_by_side`, compiled for Open MPI, and what Open MPI and UCX load at run time.
fn open_mpi(folder: &Path) -> Result<(PathBuf, Vec<(PathBuf, PathBuf)>)> {
    let compiler = find("mpicc.openmpi", "libopenmpi-dev")?;
    let (source, program) = (folder.join("loop.c"), folder.join("loop"));
    std::fs::write(&source, include_str!("../../../benches/src/mpi/loop.c")).doing("writing the peer's source")?;
    // The guest's processor is not this machine's.
    output(Command::new(compiler).args(["-std=c11", "-O2", "-march=x86-64-v2", "-o"]).arg(&program).arg(&source))?;
    let libraries = Path::new("/usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
    let parts = ["openmpi/lib/openmpi3", "pmix2", "ucx"].map(|part| libraries.join(part));
    let more = ["/usr/share/openmpi", "/etc/openmpi"].map(PathBuf::from);
    let mut files = vec![find("mpirun.openmpi", "openmpi-bin")?, find("orted", "openmpi-bin")?];
    for part in parts.into_iter().chain(more) {
        if !part.is_dir() {
            return Err(Error::Missing(format!("no {} (apt-get install openmpi-bin)", part.display())));
        }
        files.push(part);
    }
    Ok((program, files.into_iter().map(|file| (file.clone(), file)).collect()))
}

/// One measured value: call, ranks, bytes, library, microseconds.
fn add(times: &mut Times, value: &str) {
    let words: Vec<&str> = value.split_whitespace().collect();
    let [call, ranks, bytes, library, time] = words[..] else { return println!("no value: {value}") };
    match (ranks.parse(), bytes.parse(), time.parse()) {
        (Ok(ranks), Ok(bytes), Ok(time)) => {
            let cell = times.entry((call.to_owned(), ranks, bytes)).or_default();
            cell.entry(library.to_owned()).or_default().push(time);
        }
        _ => println!("no value: {value}"),
    }
}

fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable_by(f64::total_cmp);
    let (low, high) = (times[(times.len() - 1) / 2], times[times.len() / 2]);
    (low + high) / 2.0
}

/// How much quicker `ours` are than `theirs`, which are of the same rounds: within a round, median; and of the quickest. The
/// machine's speed changes by two within seconds, so what lies next to each other is what can be compared.
fn ratios(ours: &[f64], theirs: &[f64]) -> [f64; 2] {
    let each: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| theirs / ours).collect();
    let least = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
    [median(&each), least(theirs) / least(ours)]
}

/// A line for each call, number of ranks, size and peer.
fn table(times: &Times) -> String {
    let mut lines = vec![
        "| call | ranks | bytes | paceline, us | peer | peer, us | ratio | of the quickest |".to_owned(),
        "|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    for ((call, ranks, bytes), cell) in times {
        let ours = cell.get("paceline");
        for (peer, theirs) in cell.iter().filter(|(library, _)| *library != "paceline") {
            let (time, [within, quickest]) = match ours {
                Some(ours) => (format!("{:.1}", median(ours)), ratios(ours, theirs).map(|ratio| format!("{ratio:.2}"))),
                None => ("failed".to_owned(), ["-", "-"].map(str::to_owned)),
            };
            let theirs = median(theirs);
            lines.push(format!(
                "| {call} | {ranks} | {bytes} | {time} | {peer} | {theirs:.1} | {within} | {quickest} |"
            ));
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_rounds() {
        let mut times = Times::new();
        for value in ["all_reduce 2 8 paceline 10", "all_reduce 2 8 paceline 90", "all_reduce 2 8 paceline 20"] {
            add(&mut times, value);
        }
        for value in ["all_reduce 2 8 peer 12", "all_reduce 2 8 peer 99", "all_reduce 2 8 peer 60"] {
            add(&mut times, value);
        }
        add(&mut times, "all_reduce 4 8 peer 7");
        add(&mut times, "all_reduce 2 8 peer");
        let text = table(&times);
        assert!(text.contains("| all_reduce | 2 | 8 | 20.0 | peer | 60.0 | 1.20 | 1.20 |"), "{text}");
        assert!(text.contains("| all_reduce | 4 | 8 | failed | peer | 7.0 | - | - |"), "{text}");
    }
}
