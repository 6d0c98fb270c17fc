//! The loop that runs ranks over a simulated network: poll until none moves, then let the clock jump.
//!
//! Polling a thousand ranks at each of a million events would be most of the work, so a rank is polled again only when
//! something happened to it: an arrival, a credit, a control event, its own deadline, or its own last move. Before the
//! run is called stuck, every rank is polled once more.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::SimNetwork;
use super::trace::At;
use crate::clock::Time;

/// How often ranks may say that they moved while the clock stands, all together.
const MOVES_MAX: u64 = 20_000_000;

/// What one poll of a rank came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RankStep {
    /// It did something, and may be able to do more now.
    Moved,
    /// It did nothing and can do nothing until something arrives, or until this deadline ([`Time::NEVER`] for none),
    /// which it has not passed.
    Waiting(Time),
    /// It has ended, well or with an error of its own, and must not be polled again.
    Done,
}

/// Why a run was given up.
#[derive(Debug, thiserror::Error)]
#[error("simulation with seed {seed} at {at}: {kind}, ranks {ranks:?}\n{trace}", at = At(*at).to_string())]
pub struct RunError {
    /// What was found.
    pub kind: RunErrorKind,
    /// The ranks concerned.
    pub ranks: Vec<usize>,
    /// The moment on the network's clock.
    pub at: Time,
    /// The network's seed.
    pub seed: u64,
    /// The last events, one line each.
    pub trace: String,
}

/// What kind of end a run came to that it should not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunErrorKind {
    /// Ranks wait, and nothing will ever happen.
    #[error("stuck, nothing will ever happen")]
    Stuck,
    /// A rank was polled after its deadline and waits on.
    #[error("waiting past the deadline {}", At(*.0))]
    Overdue(Time),
    /// Ranks keep saying that they moved while the clock stands.
    #[error("moving for ever while the clock stands")]
    Restless,
    /// The clock has come to `SimOptions::horizon` and ranks aren't done.
    #[error("not done at the horizon")]
    Endless,
}

/// Runs one rank per closure over the network until every rank that can still run is done, and answers when that was.
///
/// A closure is given the present moment, does what it can without blocking, and says what that came to. Ranks may act on
/// one another through the network only. Dead ranks, and ranks stopped for good, need not get done.
///
/// # Errors
///
/// Where ranks wait for ever, past their deadline or past the horizon, or move for ever: [`RunErrorKind`].
///
/// # Panics
///
/// Where there isn't one closure per rank.
pub fn run<R: FnMut(Time) -> RankStep>(network: &SimNetwork, ranks: &mut [R]) -> Result<Time, RunError> {
    assert_eq!(ranks.len(), network.ranks(), "one closure per rank");
    let mut drive = Drive::new(network);
    loop {
        drive.poll_until_still(ranks)?;
        if !drive.jump()? {
            return Ok(network.now());
        }
    }
}

struct Drive<'a> {
    network: &'a SimNetwork,
    done: Vec<bool>,
    /// Whether a rank got done since this was last looked at.
    some_done: bool,
    /// Ranks to poll, each at most once, and whether a rank is among them.
    ready: VecDeque<usize>,
    is_ready: Vec<bool>,
    stirred: Vec<usize>,
    alarms: Alarms,
    /// Whether nothing happened since every rank was last polled.
    all_polled: bool,
}

impl<'a> Drive<'a> {
    fn new(network: &'a SimNetwork) -> Drive<'a> {
        let n = network.ranks();
        Drive {
            network,
            done: vec![false; n],
            some_done: false,
            ready: (0..n).collect(),
            is_ready: vec![true; n],
            stirred: Vec::new(),
            alarms: Alarms::new(n),
            all_polled: false,
        }
    }

    fn poll_until_still<R: FnMut(Time) -> RankStep>(&mut self, ranks: &mut [R]) -> Result<(), RunError> {
        let now = self.network.now();
        let mut n_moves = 0;
        while let Some(rank) = self.ready.pop_front() {
            self.is_ready[rank] = false;
            if self.done[rank] || !self.network.runnable(rank, now) {
                continue;
            }
            match ranks[rank](now) {
                RankStep::Moved => {
                    n_moves += 1;
                    self.all_polled = false;
                    self.wake(rank);
                }
                RankStep::Waiting(deadline) if deadline < now => {
                    return Err(self.error(RunErrorKind::Overdue(deadline), vec![rank]));
                }
                RankStep::Waiting(deadline) => self.alarms.set(rank, deadline.max(Time(now.0 + 1))),
                RankStep::Done => {
                    (self.done[rank], self.some_done) = (true, true);
                    self.alarms.set(rank, Time::NEVER);
                }
            }
            if n_moves > MOVES_MAX {
                let restless = (0..ranks.len()).filter(|&rank| self.is_ready[rank]).collect();
                return Err(self.error(RunErrorKind::Restless, restless));
            }
            self.wake_stirred();
        }
        Ok(())
    }

    /// Moves the clock to whatever comes next and wakes those concerned; false when nobody need be waited for.
    fn jump(&mut self) -> Result<bool, RunError> {
        let now = self.network.now();
        let alarm = self.alarms.next(|rank| self.network.runnable(rank, now));
        let next = self.network.next_event().into_iter().chain(alarm).min();
        if std::mem::take(&mut self.some_done) || next.is_none() {
            let awaited = self.awaited(now);
            if awaited.is_empty() {
                return Ok(false);
            }
            if next.is_none() {
                return self.poll_all_once(awaited).map(|()| true);
            }
        }
        let next = next.expect("without an event or a deadline the run was stuck or over");
        if next > self.network.horizon() {
            return Err(self.error(RunErrorKind::Endless, self.awaited(now)));
        }
        self.all_polled = false;
        self.network.advance_to(next);
        self.wake_stirred();
        while let Some(rank) = self.alarms.ring(next) {
            self.wake(rank);
        }
        Ok(true)
    }

    fn poll_all_once(&mut self, awaited: Vec<usize>) -> Result<(), RunError> {
        if self.all_polled {
            return Err(self.error(RunErrorKind::Stuck, awaited));
        }
        self.all_polled = true;
        awaited.into_iter().for_each(|rank| self.wake(rank));
        Ok(())
    }

    /// Ranks that aren't done and will run at some moment.
    fn awaited(&self, now: Time) -> Vec<usize> {
        (0..self.done.len()).filter(|&rank| !self.done[rank] && self.network.runs_again(rank, now)).collect()
    }

    fn wake(&mut self, rank: usize) {
        if !self.is_ready[rank] && !self.done[rank] {
            self.is_ready[rank] = true;
            self.ready.push_back(rank);
        }
    }

    fn wake_stirred(&mut self) {
        let mut stirred = std::mem::take(&mut self.stirred);
        self.network.take_stirred(&mut stirred);
        stirred.drain(..).for_each(|rank| self.wake(rank));
        self.stirred = stirred;
    }

    fn error(&self, kind: RunErrorKind, ranks: Vec<usize>) -> RunError {
        let (at, seed) = (self.network.now(), self.network.seed());
        RunError { kind, ranks, at, seed, trace: self.network.trace() }
    }
}

/// One deadline per rank, and which comes next.
struct Alarms {
    wanted: Vec<Time>,
    /// The entry of `heap` that stands for a rank. It may be earlier than what the rank wants, and is then put off when
    /// its turn comes: a deadline that moves at every poll costs nothing that way.
    standing: Vec<Time>,
    heap: BinaryHeap<Reverse<(Time, usize)>>,
}

impl Alarms {
    fn new(ranks: usize) -> Alarms {
        Alarms { wanted: vec![Time::NEVER; ranks], standing: vec![Time::NEVER; ranks], heap: BinaryHeap::new() }
    }

    fn set(&mut self, rank: usize, at: Time) {
        self.wanted[rank] = at;
        if at < self.standing[rank] {
            self.standing[rank] = at;
            self.heap.push(Reverse((at, rank)));
        }
    }

    /// The earliest deadline of a rank that runs. Those of others are forgotten: such a rank is polled when it runs again,
    /// and says then what it waits for.
    fn next(&mut self, runs: impl Fn(usize) -> bool) -> Option<Time> {
        while let Some(&Reverse((at, rank))) = self.heap.peek() {
            if at == self.standing[rank] && at == self.wanted[rank] && runs(rank) {
                return Some(at);
            }
            self.heap.pop();
            if at == self.standing[rank] {
                self.standing[rank] = Time::NEVER;
                if runs(rank) {
                    self.set(rank, self.wanted[rank]);
                }
            }
        }
        None
    }

    /// Takes one rank whose deadline has come by `now`.
    fn ring(&mut self, now: Time) -> Option<usize> {
        while let Some(&Reverse((at, rank))) = self.heap.peek()
            && at <= now
        {
            self.heap.pop();
            if at != self.standing[rank] {
                continue;
            }
            self.standing[rank] = Time::NEVER;
            let wanted = std::mem::replace(&mut self.wanted[rank], Time::NEVER);
            if wanted <= now {
                return Some(rank);
            }
            self.set(rank, wanted);
        }
        None
    }
}
