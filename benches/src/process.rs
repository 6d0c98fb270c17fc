//! Processes that run cells: started together, heard, limited in time, and none left over.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions};

/// How long processes get between the polite signal and the other, and the others after one has failed.
const GRACE: Duration = Duration::from_secs(2);
/// How much of what a failed process wrote to its standard error is shown, in lines.
const SHOWN_LINES: usize = 12;

/// Processes to start together. What the first prints counts.
pub struct Job {
    /// What each is called in reports, such as `rank 3`.
    pub commands: Vec<(String, Command)>,
}

/// How long a job may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until the first cell begins.
    pub start: Duration,
    /// For each cell.
    pub cell: Duration,
}

/// What became of a cell.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// Microseconds per call.
    Time(f64),
    /// The library doesn't have it, for this reason.
    NotOffered(String),
    /// It took longer than this many seconds.
    TooSlow(u64),
    /// The processes failed: who, and what they said.
    Failed(String),
}

/// Whether the user wants to stop, and whether this process may end all its children.
#[derive(Clone, Default)]
pub struct Supervisor {
    stop: Arc<AtomicBool>,
    adopts: bool,
}

/// The user wants to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl Supervisor {
    /// For a program's `main`: signals to stop are obeyed at the next look, and orphans of whatever is started come to
    /// this process, which ends them after every job.
    ///
    /// # Errors
    ///
    /// If signals can't be caught.
    pub fn of_program() -> std::io::Result<Supervisor> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
            signal_hook::flag::register(signal, stop.clone())?;
        }
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        Ok(Supervisor { stop, adopts: true })
    }

    /// Runs a job of `cells` cells: what became of the first ones, as far as it came. The last may have failed.
    ///
    /// # Errors
    ///
    /// If the user wants to stop.
    pub fn run(&self, job: Job, cells: usize, limits: Limits) -> Result<Vec<Outcome>, Interrupted> {
        let mut running = Running::default();
        let (said, heard) = channel();
        for (name, command) in job.commands {
            if let Err(error) = running.start(name, command, said.clone()) {
                self.end(running);
                return Ok(vec![Outcome::Failed(error)]);
            }
        }
        drop(said);
        let ended = self.listen(&mut running, &heard, cells, limits);
        self.end(running);
        ended
    }

    fn listen(
        &self,
        running: &mut Running,
        heard: &Receiver<String>,
        cells: usize,
        limits: Limits,
    ) -> Result<Vec<Outcome>, Interrupted> {
        let mut outcomes = Vec::new();
        let mut deadline = Instant::now() + limits.start + limits.cell;
        let mut failure: Option<(Instant, String)> = None;
        loop {
            let line = heard.recv_timeout(Duration::from_millis(20));
            if self.stop.load(Ordering::Relaxed) {
                return Err(Interrupted);
            }
            if let Some(outcome) = line.as_deref().ok().and_then(outcome_of) {
                outcomes.push(outcome);
                deadline = Instant::now() + limits.cell;
                continue;
            }
            if failure.is_none() {
                failure = running.failure().map(|report| (Instant::now() + GRACE / 4, report));
            }
            let silent = matches!(line, Err(RecvTimeoutError::Disconnected));
            if silent {
                std::thread::sleep(Duration::from_millis(5));
            }
            match &failure {
                // What was said before counts; a failure after the last cell does too.
                Some((until, report)) if silent || *until <= Instant::now() => {
                    outcomes.truncate(cells.saturating_sub(1));
                    outcomes.push(Outcome::Failed(report.clone()));
                    return Ok(outcomes);
                }
                None if running.all_done() && silent => {
                    if outcomes.len() < cells {
                        let said = running.said(0);
                        outcomes.push(Outcome::Failed(format!("ended without a word about this cell: {said}")));
                    }
                    return Ok(outcomes);
                }
                _ => {}
            }
            if failure.is_none() && deadline <= Instant::now() {
                outcomes.truncate(cells.saturating_sub(1));
                outcomes.push(Outcome::TooSlow(limits.cell.as_secs()));
                return Ok(outcomes);
            }
        }
    }

    /// Ends what still runs, and waits for it.
    fn end(&self, mut running: Running) {
        running.signal(Signal::TERM);
        let until = Instant::now() + GRACE;
        while !running.all_done() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        running.signal(Signal::KILL);
        for (_, child) in &mut running.children {
            let _ = child.wait();
        }
        if self.adopts {
            end_descendants();
        }
    }
}

#[derive(Default)]
struct Running {
    children: Vec<(String, Child)>,
    errors: Vec<Option<JoinHandle<String>>>,
}

impl Running {
    fn start(&mut self, name: String, mut command: Command, said: Sender<String>) -> Result<(), String> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().map_err(|error| format!("{name}: {program} can't be started: {error}"))?;
        let (output, error) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        let speaks = self.children.is_empty();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if speaks && said.send(line).is_err() {
                    return;
                }
            }
        });
        self.errors.push(Some(std::thread::spawn(move || tail(error))));
        self.children.push((name, child));
        Ok(())
    }

    fn all_done(&mut self) -> bool {
        self.children.iter_mut().all(|(_, child)| child.try_wait().is_ok_and(|status| status.is_some()))
    }

    /// Who failed first, with what it said.
    fn failure(&mut self) -> Option<String> {
        let failed =
            |(_, child): &mut (String, Child)| child.try_wait().ok().flatten().filter(|status| !status.success());
        let (at, status) = self.children.iter_mut().map(failed).enumerate().find_map(|(at, end)| Some((at, end?)))?;
        let said = self.said(at);
        Some(format!("{}: {status}: {said}", self.children[at].0))
    }

    /// The end of what a process that is done wrote to its standard error.
    fn said(&mut self, at: usize) -> String {
        // Its descendants may hold it open.
        let error = &mut self.errors[at];
        let until = Instant::now() + GRACE / 4;
        while error.as_ref().is_some_and(|thread| !thread.is_finished()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        match error.take_if(|thread| thread.is_finished()).map(JoinHandle::join) {
            Some(Ok(text)) if !text.is_empty() => text,
            _ => "(nothing on standard error)".into(),
        }
    }

    fn signal(&mut self, signal: Signal) {
        for (_, child) in &mut self.children {
            // A child that was waited for has given its number away.
            if child.try_wait().is_ok_and(|status| status.is_none()) {
                let pid = Pid::from_child(child);
                let _ = rustix::process::kill_process_group(pid, signal);
            }
        }
    }
}

/// The last lines of a stream.
fn tail(mut stream: impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}

/// What a line says about a cell; nothing, for lines of a launcher.
fn outcome_of(line: &str) -> Option<Outcome> {
    match line.split_once(' ')? {
        ("time", us) => us.trim().parse().ok().map(Outcome::Time),
        ("refused", why) => Some(Outcome::NotOffered(why.to_owned())),
        _ => None,
    }
}

/// Kills and reaps all descendants of this process, which orphans join.
fn end_descendants() {
    let me = rustix::process::getpid();
    loop {
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
        let left = descendants(me.as_raw_nonzero().get());
        if left.is_empty() {
            return;
        }
        for pid in left.into_iter().filter_map(Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn descendants(of: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let parents: Vec<(i32, i32)> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = vec![of];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}

/// The second word after the name, which is in brackets and may hold anything.
fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 1..].split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(scripts: &[&str], cells: usize, cell: Duration) -> Vec<Outcome> {
        let command = |(rank, script): (usize, &&str)| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            (format!("rank {rank}"), command)
        };
        let job = Job { commands: scripts.iter().enumerate().map(command).collect() };
        Supervisor::default().run(job, cells, Limits { start: Duration::ZERO, cell }).expect("nobody interrupts")
    }

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn what_the_first_says_counts() {
        let outcomes = run(&["echo hello; echo time 1.5; echo refused no such thing", "echo time 9"], 2, LONG);
        assert_eq!(outcomes, [Outcome::Time(1.5), Outcome::NotOffered("no such thing".into())]);
    }

    #[test]
    fn a_failure_names_the_rank_and_what_it_said() {
        let outcomes = run(&["echo time 1; sleep 60", "sleep 0.2; echo oh dear >&2; exit 3"], 2, LONG);
        let [Outcome::Time(_), Outcome::Failed(report)] = &outcomes[..] else { panic!("{outcomes:?}") };
        assert!(report.contains("rank 1") && report.contains("oh dear") && report.contains('3'), "{report}");
    }

    #[test]
    fn a_slow_cell_is_ended() {
        let start = Instant::now();
        let outcomes = run(&["echo time 1; sleep 60", "sleep 60"], 2, Duration::from_secs(1));
        assert_eq!(outcomes, [Outcome::Time(1.0), Outcome::TooSlow(1)]);
        assert!(start.elapsed() < LONG);
    }

    #[test]
    fn a_missing_program_and_silence_are_failures() {
        let job = Job { commands: vec![("rank 0".into(), Command::new("/no/such/program"))] };
        let outcomes = Supervisor::default().run(job, 1, Limits { start: LONG, cell: LONG }).unwrap();
        let [Outcome::Failed(report)] = &outcomes[..] else { panic!("{outcomes:?}") };
        assert!(report.contains("rank 0: /no/such/program can't be started"), "{report}");
        assert!(matches!(run(&["true"], 1, LONG)[..], [Outcome::Failed(_)]));
    }

    #[test]
    fn descendants_are_children_and_theirs() {
        let mut child = Command::new("sh").args(["-c", "sleep 60 & wait"]).process_group(0).spawn().expect("a shell");
        let pid = child.id() as i32;
        let until = Instant::now() + LONG;
        while descendants(pid).is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let found = descendants(std::process::id() as i32);
        assert!(found.contains(&pid) && found.contains(&descendants(pid)[0]), "{found:?}");
        let _ = rustix::process::kill_process_group(Pid::from_child(&child), Signal::KILL);
        let _ = child.wait();
    }
}
