//! Ranks as processes of this host: started together, and ended together.
//!
//! Each is this program again with the variables that say who it is, as `paceline launch` sets them. The first that fails ends
//! the job: the others get a moment to say what they saw. If this process dies in whichever way, its ranks do, too.

use std::collections::BTreeMap;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, WaitOptions, WaitStatus, getppid, set_parent_process_death_signal, wait};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::Failure;

/// The launcher's process number, for its ranks.
const LAUNCHER: &str = "TRAIN_GPT_LAUNCHER";
/// How long the others may report what they saw after one has failed.
const LAST_WORDS: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(10);

/// In a rank that [`launch`] has started: dies with the launcher from now on. Elsewhere it does nothing.
pub fn end_with_launcher() -> Result<(), Failure> {
    let Ok(launcher) = std::env::var(LAUNCHER) else { return Ok(()) };
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have died before that.
    let parent = getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    if parent.to_string() == launcher { Ok(()) } else { Err("whoever started this rank is gone".into()) }
}

/// Runs this program once for each rank, and returns when all have ended: with the code of the one that failed first.
pub fn launch(ranks: usize) -> Result<ExitCode, Failure> {
    let begun = Instant::now();
    let mut job = Job { running: BTreeMap::new() };
    job.start(ranks)?;
    let mut first = None;
    let mut end: Option<Instant> = None;
    while !job.running.is_empty() {
        let options = if end.is_some() { WaitOptions::NOHANG } else { WaitOptions::empty() };
        match wait(options) {
            Ok(Some((pid, status))) => {
                let Some((rank, _)) = job.running.remove(&(pid.as_raw_nonzero().get() as u32)) else { continue };
                if status.exit_status() != Some(0) && first.is_none() {
                    let (pid, after) = (pid.as_raw_nonzero(), begun.elapsed().as_secs_f64());
                    eprintln!("train_gpt: rank {rank} (pid {pid}) failed first: {} after {after:.1} s", said(status));
                    first = Some(code(status));
                    end = Some(Instant::now() + LAST_WORDS);
                }
            }
            Ok(None) if end.is_some_and(|end| Instant::now() >= end) => return Ok(ExitCode::from(first.unwrap_or(1))),
            Ok(None) => std::thread::sleep(LOOK),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(format!("waiting for the ranks: {error}").into()),
        }
    }
    Ok(first.map_or(ExitCode::SUCCESS, ExitCode::from))
}

/// Ranks that haven't ended, by process number. They are ended with it.
struct Job {
    running: BTreeMap<u32, (usize, Child)>,
}

impl Job {
    fn start(&mut self, ranks: usize) -> Result<(), Failure> {
        let program = std::env::current_exe()?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let (job, token) = (format!("train_gpt-{}", random()?), random()?);
        for rank in 0..ranks {
            let mut command = Command::new(&program);
            command.args(std::env::args_os().skip(1)).stdin(Stdio::null());
            command.env(LAUNCHER, std::process::id().to_string());
            command.env("PACELINE_LAUNCHER", "paceline").env("PACELINE_JOB", &job);
            command.env("PACELINE_TOKEN", &token).env_remove("PACELINE_TOKEN_FILE");
            command.env("PACELINE_RENDEZVOUS", format!("local://{job}"));
            for (name, number) in [("RANK", rank), ("SIZE", ranks), ("LOCAL_RANK", rank), ("LOCAL_SIZE", ranks)] {
                command.env(format!("PACELINE_{name}"), number.to_string());
            }
            // Ranks share the cores.
            for name in ["RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"] {
                if std::env::var_os(name).is_none() {
                    command.env(name, (cores / ranks).max(1).to_string());
                }
            }
            let child = command.spawn().map_err(|error| format!("starting rank {rank}: {error}"))?;
            self.running.insert(child.id(), (rank, child));
        }
        Ok(())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for (_, child) in self.running.values_mut() {
            // It may have ended in this moment.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn random() -> Result<String, Failure> {
    let mut bytes = [0u8; 16];
    // So few come at once.
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn said(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "it is gone".to_owned(),
    }
}

fn code(status: WaitStatus) -> u8 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code as u8,
        (None, signal) => 128 + signal.unwrap_or(0) as u8,
    }
}
