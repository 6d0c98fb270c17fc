//! paceline's own ranks: this program again, as a worker.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Library, Place, on};
use crate::matrix::{Cell, Wire};
use crate::network::address;
use crate::process::Job;

/// The port at which ranks of two hosts meet.
const PORT: u16 = 29_500;

/// paceline, as this program's `--worker`.
pub struct Paceline {
    program: PathBuf,
    jobs: AtomicUsize,
}

impl Paceline {
    /// `program` is this program's path.
    #[must_use]
    pub fn new(program: PathBuf) -> Paceline {
        Paceline { program, jobs: AtomicUsize::new(0) }
    }

    /// The processes that run this program's `--worker` with these words.
    #[must_use]
    pub fn workers(&self, place: &Place, words: &[String]) -> Job {
        let threads = place.wire == Wire::Threads;
        let job = self.jobs.fetch_add(1, Ordering::Relaxed);
        let local = format!("local://side-by-side-{}-{job}", std::process::id());
        let (meeting, links) = match place.wire {
            Wire::Tcp => (format!("tcp://{}:{PORT}", address(0)), "tcp"),
            Wire::Shm => (local, "shm"),
            Wire::Threads => (local, "inproc"),
        };
        let processes = if threads { 1 } else { place.ranks };
        let command = |rank: usize| {
            let mut command = on(place, rank, &self.program);
            clean(&mut command);
            command.env("PACELINE_RENDEZVOUS", &meeting).env("PACELINE_LINKS", links);
            command.env("PACELINE_RANK", rank.to_string()).env("PACELINE_SIZE", processes.to_string());
            command.env("PACELINE_LAUNCHER", "paceline").arg("--worker");
            if threads {
                command.args(["--threads", &place.ranks.to_string()]);
            }
            command.args(words);
            let name = if threads { "paceline's ranks".to_owned() } else { format!("paceline's rank {rank}") };
            (name, command)
        };
        Job { commands: (0..processes).map(command).collect() }
    }
}

impl Library for Paceline {
    fn name(&self) -> &'static str {
        "paceline"
    }

    fn version(&self) -> Option<&str> {
        Some(env!("CARGO_PKG_VERSION"))
    }

    fn job(&self, place: &Place, cells: &[Cell]) -> Job {
        let words: Vec<String> = cells.iter().map(ToString::to_string).collect();
        self.workers(place, &words)
    }
}

/// The user's settings for other jobs don't apply here.
fn clean(command: &mut Command) {
    for name in ["PACELINE_LOCAL_RANK", "PACELINE_LOCAL_SIZE", "PACELINE_JOB", "PACELINE_INTERFACE"] {
        command.env_remove(name);
    }
}
