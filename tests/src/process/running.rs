//! A process that runs: hearing what it says, striking it, waiting for its end.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{Said, now};

/// How long anything may take that isn't the subject of a test. Long, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a report waits for more to report.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// A signal that ends a process or its progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strike {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
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
