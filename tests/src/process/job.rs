//! The processes of a job together: what they all say, whether they all end well, and what is left of them.

use super::plan::MARK;
use super::{Process, Said};

/// The processes of a job, by rank.
pub struct Job {
    /// Each rank's process.
    pub ranks: Vec<Process>,
    pub(super) name: String,
}

impl Job {
    /// Waits until every rank has said one of these words.
    pub fn hear_all(&mut self, words: &[&str]) -> Vec<Said> {
        self.ranks.iter_mut().map(|rank| rank.hear(words)).collect()
    }

    /// Waits for every rank's end, which must be a good one, and returns all that was said.
    ///
    /// # Panics
    ///
    /// If a rank fails.
    pub fn succeed(mut self) -> Vec<Said> {
        let mut all = Vec::new();
        for rank in 0..self.ranks.len() {
            let (status, said) = self.ranks[rank].end();
            assert!(status.success(), "rank {rank}: {status}\n{}", self.report());
            all.extend(said);
        }
        all
    }

    /// All that is known, for a failing test.
    #[must_use]
    pub fn report(&mut self) -> String {
        self.ranks.iter_mut().map(Process::report).collect::<Vec<_>>().join("\n")
    }

    /// Kills what still runs, and says which processes of the job live on that this test did not start itself.
    ///
    /// # Panics
    ///
    /// If /proc can't be read.
    #[must_use]
    pub fn strays(self) -> Vec<String> {
        let Job { ranks, name } = self;
        drop(ranks);
        let mark = format!("{MARK}={name}");
        let marked = |pid: &str| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        };
        let entries = std::fs::read_dir("/proc").expect("Linux has it");
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()) && marked(name)).collect()
    }
}
