//! Runs a set of programs in the strictest way there is: a message moves only when both its ends are in progress.
//!
//! Every receive names its sender and messages between two ranks keep their order, so the k-th send from one rank to
//! another meets the k-th receive there from it, whatever the timing. That makes one run stand for all runs.

use std::collections::VecDeque;

use super::hash::Map;
use super::program::Program;
use super::step::{Rank, Step};

/// A step of one of the programs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct At {
    /// The rank whose program it is.
    pub rank: Rank,
    /// The round, from 0.
    pub round: usize,
    /// The step in the round, from 0.
    pub step: usize,
}

/// Something that follows a run.
pub trait Watch {
    /// What it may object to.
    type Fault;

    /// A rank begins a round.
    fn begin(&mut self, rank: Rank, round: usize) -> Result<(), Self::Fault>;

    /// A message moves.
    fn transfer(&mut self, send: At, receive: At) -> Result<(), Self::Fault>;

    /// All steps of a rank's round have ended.
    fn end(&mut self, rank: Rank, round: usize) -> Result<(), Self::Fault>;
}

/// Why a run stopped early.
#[derive(Debug)]
pub enum Stop<F> {
    /// The watcher objected.
    Fault(F),
    /// No rank can go on. The steps that wait, in order, and the round each rank is in (`None`: it has ended).
    Stuck(Vec<At>, Vec<Option<usize>>),
}

impl<F> From<F> for Stop<F> {
    fn from(fault: F) -> Stop<F> {
        Stop::Fault(fault)
    }
}

struct Run<'a> {
    programs: &'a [Program],
    /// Per rank, the round it is in.
    rounds: Vec<usize>,
    /// Per rank, how many messages of its round have not moved.
    n_open: Vec<usize>,
    /// Per sender and receiver, the ends that wait for the other end; all are sends or all are receives.
    waiting: Map<(Rank, Rank), VecDeque<(bool, At)>>,
    /// Ranks whose round has ended.
    ready: Vec<Rank>,
}

/// Runs the programs of ranks 0, 1, ... to their ends.
pub fn run<W: Watch>(programs: &[Program], watch: &mut W) -> Result<(), Stop<W::Fault>> {
    let n = programs.len();
    let mut run =
        Run { programs, rounds: vec![0; n], n_open: vec![0; n], waiting: Map::default(), ready: Vec::with_capacity(n) };
    for rank in 0..n as Rank {
        run.begin(rank, watch)?;
    }
    while let Some(rank) = run.ready.pop() {
        watch.end(rank, run.rounds[rank as usize])?;
        run.rounds[rank as usize] += 1;
        run.begin(rank, watch)?;
    }
    let rounds: Vec<_> = programs.iter().zip(&run.rounds).map(|(p, r)| (*r < p.n_rounds()).then_some(*r)).collect();
    if rounds.iter().all(Option::is_none) {
        return Ok(());
    }
    let mut stuck: Vec<At> = run.waiting.into_values().flatten().map(|(_, at)| at).collect();
    stuck.sort_unstable();
    Err(Stop::Stuck(stuck, rounds))
}

impl Run<'_> {
    fn begin<W: Watch>(&mut self, rank: Rank, watch: &mut W) -> Result<(), Stop<W::Fault>> {
        let (program, round) = (&self.programs[rank as usize], self.rounds[rank as usize]);
        if round == program.n_rounds() {
            return Ok(());
        }
        watch.begin(rank, round)?;
        let steps = program.steps_of(round);
        let n_messages = steps.iter().filter(|s| !matches!(s, Step::Copy { .. } | Step::Reduce { .. })).count();
        self.n_open[rank as usize] = n_messages;
        if n_messages == 0 {
            self.ready.push(rank);
        }
        for (step, what) in steps.iter().enumerate() {
            let at = At { rank, round, step };
            match *what {
                Step::Send { to, .. } => self.post((rank, to), true, at, watch)?,
                Step::Recv { from, .. } | Step::RecvReduce { from, .. } => self.post((from, rank), false, at, watch)?,
                Step::Copy { .. } | Step::Reduce { .. } => {}
            }
        }
        Ok(())
    }

    /// Puts one end of a message in progress; the message moves if the other end waits.
    fn post<W: Watch>(&mut self, pair: (Rank, Rank), sends: bool, at: At, watch: &mut W) -> Result<(), Stop<W::Fault>> {
        let waiting = self.waiting.entry(pair).or_default();
        match waiting.front() {
            Some((other_sends, other)) if *other_sends != sends => {
                let (send, receive) = if sends { (at, *other) } else { (*other, at) };
                waiting.pop_front();
                watch.transfer(send, receive)?;
                for rank in [send.rank, receive.rank] {
                    self.n_open[rank as usize] -= 1;
                    if self.n_open[rank as usize] == 0 {
                        self.ready.push(rank);
                    }
                }
            }
            _ => waiting.push_back((sends, at)),
        }
        Ok(())
    }
}
