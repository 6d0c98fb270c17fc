//! From the first rank's start to the last one's end: one loop over events, in the thread that started the ranks.
//!
//! Ranks are waited for without being reaped until the job is over. Until then their process numbers are theirs, and a
//! signal can't reach a stranger.

use std::io;
use std::process::Child;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::outcome::{Ending, Outcome};
use super::output::Sink;
use super::ranks::{Job, signal};

/// How long the other ranks may report what they saw, after one has failed, before they get SIGTERM.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long output may still come from processes that ranks left behind.
const LEFTOVERS: Duration = Duration::from_millis(500);

enum Event {
    Ended { rank: usize, outcome: Outcome },
    Signal(i32),
    OutputEnded,
    OutputGone,
}

/// What the ranks get next, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Nothing,
    Terminate(Instant),
    Kill(Instant),
}

/// Starts the job's ranks, and returns the exit code when all have ended.
#[must_use]
pub fn run(job: &Job) -> u8 {
    let (events, inbox) = channel();
    // Before the first rank, so that no signal comes in between.
    let signals = match watch_signals(events.clone()) {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("paceline launch: cannot handle signals: {error}");
            return 1;
        }
    };
    let mut supervisor = Supervisor {
        job,
        inbox,
        children: Vec::with_capacity(job.n),
        outcomes: Vec::with_capacity(job.n),
        outputs: 0,
        begun: Instant::now(),
        next: Next::Nothing,
        ending: None,
    };
    let code = supervisor.run(&events);
    signals.close();
    code
}

struct Supervisor<'a> {
    job: &'a Job,
    inbox: Receiver<Event>,
    children: Vec<Child>,
    outcomes: Vec<Option<Outcome>>,
    /// Pipes that have not ended.
    outputs: usize,
    begun: Instant,
    next: Next,
    /// Why the job ends, and when that was found.
    ending: Option<(Ending, Duration)>,
}

impl Supervisor<'_> {
    fn run(&mut self, events: &Sender<Event>) -> u8 {
        if let Err(error) = self.start(events) {
            let program = self.job.command[0].to_string_lossy();
            eprintln!("paceline launch: cannot start rank {} ({program}): {error}", self.children.len());
            self.signal_all(Signal::KILL);
            self.reap();
            return if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
        }
        while self.outcomes.iter().any(Option::is_none) {
            let deadline = self.deadline();
            match self.receive(deadline) {
                Some(event) => self.handle(event),
                None => self.act(),
            }
        }
        self.drain();
        let (ending, after) = self.ending.unwrap_or((Ending::Good, self.begun.elapsed()));
        let pids: Vec<u32> = self.children.iter().map(Child::id).collect();
        eprint!("{}", ending.report(&pids, &self.outcomes, after));
        self.reap();
        ending.exit_code()
    }

    fn start(&mut self, events: &Sender<Event>) -> io::Result<()> {
        let (stdout, stderr) = (Arc::new(Sink::stdout()), Arc::new(Sink::stderr()));
        for rank in 0..self.job.n {
            let mut child = self.job.start(rank)?;
            let pid = Pid::from_child(&child);
            if let Some(from) = child.stdout.take() {
                self.pass_on(rank, from, stdout.clone(), events.clone())?;
            }
            if let Some(from) = child.stderr.take() {
                self.pass_on(rank, from, stderr.clone(), events.clone())?;
            }
            self.children.push(child);
            self.outcomes.push(None);
            let events = events.clone();
            thread(format!("wait {rank}"), move || {
                // Nobody listens any more once the job is over.
                let _ = events.send(Event::Ended { rank, outcome: wait(pid) });
            })?;
        }
        Ok(())
    }

    fn pass_on(
        &mut self,
        rank: usize,
        from: impl io::Read + Send + 'static,
        to: Arc<Sink>,
        events: Sender<Event>,
    ) -> io::Result<()> {
        self.outputs += 1;
        thread(format!("output {rank}"), move || {
            let event = if to.pass_on(rank, from).is_ok() { Event::OutputEnded } else { Event::OutputGone };
            let _ = events.send(event);
        })
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Ended { rank, outcome } => {
                self.outcomes[rank] = Some(outcome);
                if self.is_to_blame_instead(outcome) {
                    self.ending = None;
                }
                if !outcome.is_good() && self.ending.is_none() {
                    self.end(Ending::Failed { rank, outcome }, Next::Terminate(Instant::now() + LAST_WORDS));
                }
            }
            Event::Signal(number) => {
                if matches!(self.ending, Some((Ending::Interrupted(_), _))) {
                    self.signal_all(Signal::KILL);
                } else {
                    self.signal_all(Signal::from_named_raw(number).unwrap_or(Signal::TERM));
                    self.end(Ending::Interrupted(number), Next::Kill(Instant::now() + self.job.grace));
                }
            }
            Event::OutputEnded => self.outputs -= 1,
            Event::OutputGone => {
                self.outputs -= 1;
                if self.ending.is_none() {
                    self.end(Ending::OutputGone, Next::Terminate(Instant::now()));
                }
            }
        }
    }

    /// Whether a rank that ended so is to blame, and not the one that is blamed so far. Whom this has told to end is not.
    fn is_to_blame_instead(&self, outcome: Outcome) -> bool {
        let Some((ending, found)) = self.ending else { return false };
        matches!(self.next, Next::Terminate(_)) && ending.gives_way(outcome, self.begun.elapsed() - found)
    }

    /// Ends the job, for the first reason there is.
    fn end(&mut self, ending: Ending, next: Next) {
        self.ending.get_or_insert((ending, self.begun.elapsed()));
        self.next = next;
    }

    fn deadline(&self) -> Option<Instant> {
        match self.next {
            Next::Nothing => self.job.timeout.and_then(|timeout| self.begun.checked_add(timeout)),
            Next::Terminate(at) | Next::Kill(at) => Some(at),
        }
    }

    /// Does what is due at the deadline.
    fn act(&mut self) {
        let kill_later = Next::Kill(Instant::now() + self.job.grace);
        match self.next {
            Next::Nothing => {
                self.signal_all(Signal::TERM);
                self.end(Ending::TimedOut(self.job.timeout.unwrap_or_default()), kill_later);
            }
            Next::Terminate(_) => {
                self.signal_all(Signal::TERM);
                self.next = kill_later;
            }
            Next::Kill(_) => {
                self.signal_all(Signal::KILL);
                self.next = Next::Kill(Instant::now() + self.job.grace);
            }
        }
    }

    /// Waits for the last output. Processes that ranks left behind in their groups are ended: they may hold the pipes.
    fn drain(&mut self) {
        for last in [Signal::TERM, Signal::KILL] {
            let until = Instant::now() + LEFTOVERS;
            while self.outputs > 0 {
                match self.receive(Some(until)) {
                    Some(Event::OutputEnded | Event::OutputGone) => self.outputs -= 1,
                    Some(Event::Ended { .. } | Event::Signal(_)) => {}
                    None => break,
                }
            }
            self.signal_all(last);
        }
    }

    fn receive(&self, deadline: Option<Instant>) -> Option<Event> {
        let Some(deadline) = deadline else { return self.inbox.recv().ok() };
        match self.inbox.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => unreachable!("the supervisor's caller holds a sender"),
        }
    }

    /// Signals all ranks' groups, and lets those that are stopped go on, so that they get it.
    fn signal_all(&self, number: Signal) {
        for child in &self.children {
            signal(child, number);
            signal(child, Signal::CONT);
        }
    }

    fn reap(&mut self) {
        for child in &mut self.children {
            // Every one has ended or was killed; there is nothing to learn from it.
            let _ = child.wait();
        }
    }
}

/// Waits until a process has ended, and leaves it to be reaped.
fn wait(pid: Pid) -> Outcome {
    loop {
        match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(Some(status)) => {
                return match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Outcome::Exited(code),
                    (None, Some(signal)) => Outcome::Killed(signal),
                    (None, None) => continue,
                };
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("cannot wait for process {pid:?}: {error}"),
        }
    }
}

fn watch_signals(events: Sender<Event>) -> io::Result<signal_hook::iterator::Handle> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let handle = signals.handle();
    thread("signals".to_string(), move || {
        for signal in signals.forever() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(handle)
}

fn thread(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name).stack_size(256 << 10).spawn(body).map(|_| ())
}
