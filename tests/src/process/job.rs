//! Starting the ranks of a job, hearing what they say, striking them, and ending them all.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{Said, now, tools};

/// How long anything may take that isn't the subject of a test. Long, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a report waits for more to report.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// The variable by which a job's processes are found again.
const MARK: &str = "PACELINE_TEST_JOB";

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

/// A signal that ends a process or its progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strike {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
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

/// A process whose output is read as it comes. Killed when dropped.
pub struct Process {
    child: Child,
    words: String,
    lines: Receiver<String>,
    said: Vec<Said>,
    heard: usize,
    other: Vec<String>,
    complaints: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Process {
    /// Starts a command and reads its output.
    ///
    /// # Panics
    ///
    /// If it can't be started.
    #[must_use]
    pub fn start(mut command: Command) -> Process {
        let words = format!("{command:?}");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("starting {words}: {error}"));
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut errors = child.stderr.take().expect("it is piped");
        let complaints = Arc::new(Mutex::new(String::new()));
        let theirs = complaints.clone();
        let readers = vec![
            std::thread::spawn(move || {
                for line in output.lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            }),
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(bytes @ 1..) = errors.read(&mut buffer) {
                    theirs.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..bytes]));
                }
            }),
        ];
        Process { child, words, lines, said: Vec::new(), heard: 0, other: Vec::new(), complaints, readers }
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal; when that was.
    ///
    /// # Panics
    ///
    /// If it has been waited for.
    pub fn strike(&self, strike: Strike) -> Duration {
        let signal = if strike == Strike::Kill { Signal::KILL } else { Signal::STOP };
        let at = now();
        kill_process(Pid::from_child(&self.child), signal).expect("it has not been waited for");
        at
    }

    /// Lets a stopped process go on.
    ///
    /// # Panics
    ///
    /// If it has been waited for.
    pub fn resume(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).expect("it has not been waited for");
    }

    /// The next thing that it says, of those with one of these words; what else it says before is passed over.
    ///
    /// # Panics
    ///
    /// If it ends, or a minute passes, before it says so.
    pub fn hear(&mut self, words: &[&str]) -> Said {
        let until = Instant::now() + PATIENCE;
        loop {
            while self.heard < self.said.len() {
                self.heard += 1;
                if words.contains(&self.said[self.heard - 1].word.as_str()) {
                    return self.said[self.heard - 1].clone();
                }
            }
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => self.take(line),
                Err(RecvTimeoutError::Timeout) => panic!("waited {PATIENCE:?} for {words:?} from\n{}", self.report()),
                Err(RecvTimeoutError::Disconnected) => panic!("ended before it said {words:?}:\n{}", self.report()),
            }
        }
    }

    /// Waits for a line of its other output that contains `text`.
    ///
    /// # Panics
    ///
    /// As [`Process::hear`].
    pub fn hear_line(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.other.iter().any(|line| line.contains(text)) {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => self.take(line),
                Err(error) => panic!("{error} before a line with {text:?} from\n{}", self.report()),
            }
        }
    }

    fn take(&mut self, line: String) {
        match Said::parse(&line) {
            Some(said) => self.said.push(said),
            None => self.other.push(line),
        }
    }

    /// Waits for its end: how it ended, and all it said.
    ///
    /// # Panics
    ///
    /// If it doesn't end within a minute.
    pub fn end(&mut self) -> (ExitStatus, Vec<Said>) {
        self.end_within(PATIENCE)
    }

    /// As [`Process::end`], with a limit.
    ///
    /// # Panics
    ///
    /// If it doesn't end by then.
    pub fn end_within(&mut self, limit: Duration) -> (ExitStatus, Vec<Said>) {
        let until = Instant::now() + limit;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => self.take(line),
                Err(RecvTimeoutError::Timeout) => panic!("waited {limit:?} for the end of\n{}", self.report()),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = self.child.wait().expect("it is a child");
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        (status, self.said.clone())
    }

    /// What it wrote besides, line by line.
    #[must_use]
    pub fn other_output(&self) -> &[String] {
        &self.other
    }

    /// What it wrote to its standard error so far.
    ///
    /// # Panics
    ///
    /// If a reader has panicked.
    #[must_use]
    pub fn complaints(&self) -> String {
        self.complaints.lock().unwrap().clone()
    }

    /// All that is known of it, for a failing test.
    #[must_use]
    pub fn report(&mut self) -> String {
        let until = Instant::now() + LAST_WORDS;
        while let Ok(line) = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.take(line);
        }
        let said: Vec<String> =
            self.said.iter().map(|said| format!("{} {} {}", said.word, said.rank, said.rest)).collect();
        let (other, complaints) = (self.other.join("\n"), self.complaints());
        format!("{}\nsaid: {}\noutput: {other}\nerrors: {complaints}", self.words, said.join("\n      "))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The processes of a job, by rank.
pub struct Job {
    /// Each rank's process.
    pub ranks: Vec<Process>,
    name: String,
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
