//! A latency-bandwidth clock for each rank.
//!
//! A rank has a port out, a port in and one core. In a round its messages leave one after another, in the order of its
//! steps, and are taken in the order in which they come; both ports work at the same time. A message is there
//! `latency_s` after it has left, and waits in the link until the receiver's round has come and its port in is free.
//! Copies and folds take the core one after another, those that need no message from the round's start on. Ranks start
//! together, and nothing else is on the links: no contention, no topology.

use super::{Costs, Load};
use crate::schedule::run::{At, Stop, Watch, run};
use crate::schedule::{Program, Rank, Step};

/// How long a set of programs takes for a message of `bytes` bytes, and what each rank does.
#[derive(Clone, PartialEq, Debug)]
pub struct Clocked {
    /// When the last rank ends, counted from the common start.
    pub seconds: f64,
    /// Per rank, what it does.
    pub loads: Vec<Load>,
}

/// Runs the clock over the programs of ranks 0, 1, ..., whose chunks are equally long.
///
/// `None` if the programs wait for each other forever: they should have been [proved](crate::schedule::check::prove).
#[must_use]
pub fn clock(programs: &[Program], bytes: u64, costs: &Costs) -> Option<Clocked> {
    let n = programs.len();
    let chunk = 1.0 / programs.first().map_or(1.0, |program| f64::from(program.chunks));
    let mut clock = Clock {
        programs,
        costs,
        chunk,
        bytes: bytes as f64,
        ranks: vec![RankClock::default(); n],
        leaving: vec![Vec::new(); n],
        arriving: vec![Vec::new(); n],
        loads: vec![[Load::default(); 2]; n],
    };
    match run(programs, &mut clock) {
        Ok(()) => {}
        Err(Stop::Fault(never)) => match never {},
        Err(Stop::Stuck(..)) => return None,
    }
    let seconds = clock.ranks.iter().map(|rank| rank.start).fold(0.0, f64::max);
    let busier = |[out, into]: [Load; 2]| Load {
        messages: out.messages.max(into.messages),
        sent: out.sent.max(into.sent),
        folded: into.folded,
        copied: out.copied,
    };
    Some(Clocked { seconds, loads: clock.loads.into_iter().map(busier).collect() })
}

/// Where one rank is in time.
#[derive(Clone, Copy, Default)]
struct RankClock {
    /// When its round began.
    start: f64,
    /// When its core is free.
    core: f64,
    /// When the last message of its round has left.
    left: f64,
}

/// A message that a rank receives in its round.
#[derive(Clone, Copy)]
struct Arriving {
    /// When it is there.
    at: f64,
    /// How long it takes the port.
    port: f64,
    /// How long it takes the core after that.
    fold: f64,
}

struct Clock<'a> {
    programs: &'a [Program],
    costs: &'a Costs,
    /// A chunk's part of the message.
    chunk: f64,
    bytes: f64,
    ranks: Vec<RankClock>,
    /// Per rank and step of its round: when the port out is done with it, counted from the round's start.
    leaving: Vec<Vec<f64>>,
    /// Per rank, what it receives in its round.
    arriving: Vec<Vec<Arriving>>,
    /// Per rank, what has gone out of it and what has come in. It copies what goes out, and folds what comes in.
    loads: Vec<[Load; 2]>,
}

impl Clock<'_> {
    fn part(&self, count: u32) -> f64 {
        f64::from(count) * self.chunk
    }

    /// How long a message of `count` chunks takes a port.
    fn port_s(&self, count: u32) -> f64 {
        self.costs.message_s + self.part(count) * self.bytes * self.costs.byte_s
    }
}

/// What cannot be.
enum Never {}

impl Watch for Clock<'_> {
    type Fault = Never;

    fn begin(&mut self, rank: Rank, round: usize) -> Result<(), Never> {
        let me = rank as usize;
        let mut now = self.ranks[me];
        let [mut load_out, mut load_in] = self.loads[me];
        let mut leaving = std::mem::take(&mut self.leaving[me]);
        leaving.clear();
        let mut out = 0.0;
        now.core = now.start;
        for step in self.programs[me].steps_of(round) {
            match *step {
                Step::Send { source, .. } => {
                    out += self.port_s(source.count);
                    load_out.messages += 1.0;
                    load_out.sent += self.part(source.count);
                }
                Step::Recv { target, .. } | Step::RecvReduce { target, .. } => {
                    load_in.messages += 1.0;
                    load_in.sent += self.part(target.count);
                }
                Step::Copy { target, .. } => {
                    now.core += self.part(target.count) * self.bytes * self.costs.copy_byte_s;
                    load_out.copied += self.part(target.count);
                }
                Step::Reduce { runs, target, .. } => {
                    let folded = self.part(target.count) * f64::from(runs.saturating_sub(1));
                    now.core += folded * self.bytes * self.costs.fold_byte_s;
                    load_in.folded += folded;
                }
            }
            leaving.push(out);
        }
        now.left = now.start + out;
        self.ranks[me] = now;
        self.loads[me] = [load_out, load_in];
        self.leaving[me] = leaving;
        Ok(())
    }

    fn transfer(&mut self, send: At, receive: At) -> Result<(), Never> {
        let (from, to) = (send.rank as usize, receive.rank as usize);
        let (count, folded) = match self.programs[to].steps_of(receive.round)[receive.step] {
            Step::RecvReduce { target, .. } => (target.count, self.part(target.count)),
            Step::Recv { target, .. } => (target.count, 0.0),
            step => unreachable!("{step} does not receive"),
        };
        let at = self.ranks[from].start + self.leaving[from][send.step] + self.costs.latency_s;
        let fold = folded * self.bytes * self.costs.fold_byte_s;
        self.loads[to][1].folded += folded;
        let arriving = Arriving { at, port: self.port_s(count), fold };
        self.arriving[to].push(arriving);
        Ok(())
    }

    fn end(&mut self, rank: Rank, _round: usize) -> Result<(), Never> {
        let (now, arriving) = (&mut self.ranks[rank as usize], &mut self.arriving[rank as usize]);
        arriving.sort_by(|one, other| one.at.total_cmp(&other.at));
        let mut port_free = now.start;
        for message in arriving.drain(..) {
            port_free = message.at.max(port_free + message.port);
            if message.fold > 0.0 {
                now.core = now.core.max(port_free) + message.fold;
            }
        }
        now.start = now.left.max(port_free).max(now.core);
        Ok(())
    }
}
