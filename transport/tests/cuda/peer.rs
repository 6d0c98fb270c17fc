//! A process that the tests start beside themselves: this binary once more, with a part to play.
//!
//! Both speak in lines: what the peer says begins with `peer: `, what it is told is its standard input.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const ROLE: &str = "PACELINE_TEST_CUDA_ROLE";
const MARK: &str = "peer: ";

/// How long either waits for a line.
const PATIENCE: Duration = Duration::from_secs(60);

/// A started process; it is ended when this is dropped.
pub struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    said: Receiver<String>,
}

impl Peer {
    /// Starts this binary with the part named `role`.
    pub fn start(role: &str) -> Peer {
        Peer::start_with(role, &[])
    }

    /// Starts this binary with the part named `role` and these variables.
    pub fn start_with(role: &str, variables: &[(&str, &OsStr)]) -> Peer {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command
            .args(["--exact", "processes::as_peer", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .envs(variables.iter().copied());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("this binary can be started");
        let (send, said) = channel();
        let output = BufReader::new(child.stdout.take().expect("it is a pipe"));
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The test harness may have begun the line.
                if let Some((_, line)) = line.split_once(MARK) {
                    // The test may have ended.
                    let _ = send.send(line.to_owned());
                }
            }
        });
        let input = child.stdin.take();
        Peer { child, input, said }
    }

    /// Tells it a line.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().expect("it listens"), "{line}").expect("the peer listens");
    }

    /// The next line that it says.
    pub fn hear(&self) -> String {
        self.said.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("the peer says nothing: {error}"))
    }

    /// Waits until it has ended well.
    pub fn end(mut self) {
        drop(self.input.take());
        if let Ok(line) = self.said.recv_timeout(PATIENCE) {
            panic!("the peer says more: {line}");
        }
        assert!(self.child.wait().expect("it was started").success(), "the peer has failed");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The part that this process plays, if it was started for one.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Says a line to whoever started this process.
pub fn say(line: &str) {
    println!("{MARK}{line}");
}

/// The next line that this process is told; nothing when whoever started it has no more to tell.
pub fn told() -> Option<String> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).ok().filter(|read| *read > 0)?;
    Some(line.trim_end().to_owned())
}

/// Bytes as text.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What [`hex`] has written.
pub fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..][..2], 16).expect("a byte")).collect()
}
