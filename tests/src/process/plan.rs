//! How the ranks of a job are started: which steps they take, where they meet, and behind which words.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Job, Process, tools};

/// The variable by which a job's processes are found again.
pub(super) const MARK: &str = "PACELINE_TEST_JOB";

/// A name that no other test, run or process uses.
#[must_use]
pub fn unique(what: &str) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Whose variables tell a process which rank it is; none of them must reach a worker from outside.
const LAUNCHERS: [&str; 9] =
    ["PACELINE_", "OMPI_", "PMIX_", "PMI_", "MPI_", "SLURM_", "TORCHELASTIC_", "MASTER_", "LOCAL_"];

/// Words to put in front of a command.
type Wrap = Box<dyn Fn(usize) -> Vec<String> + Send + Sync>;

/// How to start the ranks of a job.
pub struct Plan {
    size: usize,
    steps: Vec<String>,
    variables: Vec<(String, String)>,
    wrap: Option<Wrap>,
    name: String,
}

impl Plan {
    /// Ranks that meet in a place of their own on this host and then do `steps`: see the worker's documentation.
    #[must_use]
    pub fn new(size: usize, steps: &str) -> Plan {
        let plan = Plan::without_a_place(size, steps);
        let place = format!("local://{}", plan.name);
        plan.variable("PACELINE_RENDEZVOUS", place)
    }

    /// The same without a place to meet.
    #[must_use]
    pub fn without_a_place(size: usize, steps: &str) -> Plan {
        let steps = steps.split_whitespace().map(str::to_owned).collect();
        let plan = Plan { size, steps, variables: Vec::new(), wrap: None, name: unique("paceline-test") };
        // Shorter than this test's patience, so that what is stuck says why.
        plan.variable("PACELINE_TIMEOUT", "40").variable("PACELINE_INIT_TIMEOUT", "40")
    }

    /// The same with another environment variable, on every rank.
    #[must_use]
    pub fn variable(mut self, name: &str, value: impl std::fmt::Display) -> Plan {
        self.variables.retain(|(other, _)| other != name);
        self.variables.push((name.to_owned(), value.to_string()));
        self
    }

    /// The same with the worker's command behind the words that `wrap` gives for each rank.
    #[must_use]
    pub fn behind(self, wrap: impl Fn(usize) -> Vec<String> + Send + Sync + 'static) -> Plan {
        Plan { wrap: Some(Box::new(wrap)), ..self }
    }

    /// A worker's command, for a launcher that says itself which rank is which.
    #[must_use]
    pub fn launched_by(&self, launcher: &[&str]) -> Process {
        let mut command = Command::new(launcher[0]);
        command.args(&launcher[1..]).arg(tools::worker()).args(&self.steps);
        self.start(command, |_, name| name != "PACELINE_RENDEZVOUS")
    }

    /// Starts rank `rank`.
    #[must_use]
    pub fn rank(&self, rank: usize) -> Process {
        self.with_numbers(rank, [("PACELINE_RANK", rank), ("PACELINE_SIZE", self.size)])
    }

    /// Starts a process of this job with the given numbers in its environment.
    ///
    /// # Panics
    ///
    /// If it can't be started.
    #[must_use]
    pub fn with_numbers<const N: usize>(&self, rank: usize, numbers: [(&str, usize); N]) -> Process {
        let mut words = self.wrap.as_ref().map(|wrap| wrap(rank)).unwrap_or_default();
        words.push(tools::worker().display().to_string());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(&self.steps);
        command.envs(numbers.map(|(name, number)| (name, number.to_string())));
        self.start(command, |_, _| true)
    }

    /// Starts all ranks.
    #[must_use]
    pub fn all(&self) -> Job {
        Job { ranks: (0..self.size).map(|rank| self.rank(rank)).collect(), name: self.name.clone() }
    }

    fn start(&self, mut command: Command, takes: impl Fn(&Plan, &str) -> bool) -> Process {
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let is_torchrun = ["RANK", "WORLD_SIZE"].contains(&&*text);
            if is_torchrun || LAUNCHERS.iter().any(|prefix| text.starts_with(prefix)) {
                let is_set = command.get_envs().any(|(set, value)| set == name && value.is_some());
                if !is_set {
                    command.env_remove(name);
                }
            }
        }
        command.env(MARK, &self.name).env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        for (name, value) in self.variables.iter().filter(|(name, _)| takes(self, name)) {
            command.env(name, value);
        }
        Process::start(command)
    }
}
