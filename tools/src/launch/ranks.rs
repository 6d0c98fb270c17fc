//! The ranks' processes: with which environment they start, and how they are signalled.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use rustix::rand::{GetRandomFlags, getrandom};

use super::arguments::Arguments;
use super::sys;

/// What is to be started.
#[derive(Clone, Debug)]
pub struct Job {
    /// How many ranks.
    pub n: usize,
    /// What each runs.
    pub command: Vec<OsString>,
    /// When to end it.
    pub timeout: Option<Duration>,
    /// From SIGTERM to SIGKILL.
    pub grace: Duration,
    /// Whether lines get the rank's number.
    pub prefix: bool,
    name: String,
    token: String,
}

impl Job {
    /// A job with a meeting place and a secret of its own, so that it never meets another.
    ///
    /// # Errors
    ///
    /// The system gives no random numbers.
    pub fn new(n: usize, arguments: &Arguments) -> Result<Job, String> {
        let secret = || random_hex().map_err(|error| format!("no random numbers from the system: {error}"));
        Ok(Job {
            n,
            command: arguments.command.clone(),
            timeout: arguments.timeout,
            grace: arguments.grace,
            prefix: !arguments.no_prefix,
            name: format!("paceline-{}-{}", std::process::id(), secret()?),
            token: match &arguments.token {
                Some(token) => token.clone(),
                None => secret()?,
            },
        })
    }

    /// The variables that make a process rank `rank`.
    #[must_use]
    pub fn environment(&self, rank: usize) -> [(&'static str, String); 8] {
        [
            ("PACELINE_LAUNCHER", "paceline".to_string()),
            ("PACELINE_RANK", rank.to_string()),
            ("PACELINE_SIZE", self.n.to_string()),
            ("PACELINE_LOCAL_RANK", rank.to_string()),
            ("PACELINE_LOCAL_SIZE", self.n.to_string()),
            ("PACELINE_RENDEZVOUS", format!("local://{}", self.name)),
            ("PACELINE_JOB", self.name.clone()),
            ("PACELINE_TOKEN", self.token.clone()),
        ]
    }

    /// Starts a rank, in a process group of its own. Its outputs are pipes if lines get numbers. Rank 0 reads the
    /// launcher's standard input unless that is a terminal, the others read nothing.
    ///
    /// # Errors
    ///
    /// The command cannot be started.
    pub fn start(&self, rank: usize) -> io::Result<Child> {
        let stream = || if self.prefix { Stdio::piped() } else { Stdio::inherit() };
        let input = if rank == 0 && !io::stdin().is_terminal() { Stdio::inherit() } else { Stdio::null() };
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).envs(self.environment(rank)).env_remove("PACELINE_TOKEN_FILE");
        command.stdin(input).stdout(stream()).stderr(stream()).process_group(0);
        sys::die_with_parent(&mut command);
        command.spawn()
    }
}

/// Sends a signal to a rank's process and all of its group. The process must not have been waited for, so that its
/// number is still its own.
pub fn signal(child: &Child, signal: Signal) {
    let group = Pid::from_child(child);
    // It may have no process left that can be signalled.
    let _ = kill_process_group(group, signal);
}

fn random_hex() -> rustix::io::Result<String> {
    let mut bytes = [0u8; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
