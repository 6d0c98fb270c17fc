//! Everything a simulated network remembers, and the agenda of what will happen.
//!
//! The agenda is a heap of moments at which something must be looked at: a pipe whose oldest item is due, a fault, a rank
//! that runs again. A pipe has one entry however much is in it, so the heap is as long as the number of busy wires. An
//! entry that no longer fits (the pipe was cleared or held) is skipped when its moment comes. Events of one moment happen
//! in the order in which they were put on the agenda, which is what makes a run repeatable.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::fault::{Fault, Faults};
use super::ports::Ports;
use super::trace::{At, Trace};
use super::wire::{Post, Split, Standing, Wire};
use super::{LinkProfile, Port, Random, SimOptions};
use crate::clock::Time;
use crate::control::ControlEvent;

/// One end of one connection, and the wire that leads away from it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct End {
    pub connection: u32,
    pub side: u8,
}

impl End {
    pub fn other(self) -> End {
        End { side: 1 - self.side, ..self }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    Frames(End),
    Post(End),
    /// Pieces come to the first port of a wire's way.
    Enter(End),
    Port(Port),
    Fault(usize),
    RunsAgain(usize),
}

pub(super) struct Connection {
    pub ranks: [usize; 2],
    pub standing: [Standing; 2],
    /// Whether each side has told that it leaves, and whether its link is dropped.
    pub left: [bool; 2],
    pub dropped: [bool; 2],
    /// The wire that leads away from each side, made when something is first sent over it.
    pub wires: [Option<Box<Wire>>; 2],
}

type ProfileOf = Box<dyn Fn(usize, usize) -> LinkProfile + Send>;

pub(super) struct State {
    pub options: SimOptions,
    pub split: Split,
    pub faults: Faults,
    pub trace: Trace,
    pub connections: Vec<Connection>,
    /// Connections whose first end is made by one rank and whose second, the key says whose and to whom, is not yet.
    pub unmatched: HashMap<(usize, usize), VecDeque<u32>>,
    pub overrides: HashMap<(usize, usize), LinkProfile>,
    pub profile_of: Option<ProfileOf>,
    pub ports: Ports,
    pub clock: Arc<AtomicU64>,
    pub agenda: BinaryHeap<Reverse<(Time, u64, Event)>>,
    pub script: Vec<Fault>,
    n_planned: u64,
    stirred: Vec<usize>,
    is_stirred: Vec<bool>,
}

impl State {
    pub fn new(options: SimOptions, clock: Arc<AtomicU64>) -> State {
        let split = Split {
            frame_bytes: options.frame_bytes,
            grain_bytes: options.grain_bytes,
            piece_bytes: options.piece_bytes,
            window_bytes: options.window_bytes,
            ragged: options.ragged,
        };
        State {
            split,
            faults: Faults::default(),
            trace: Trace::new(options.trace_events),
            connections: Vec::new(),
            unmatched: HashMap::new(),
            overrides: HashMap::new(),
            profile_of: None,
            ports: Ports::default(),
            clock,
            agenda: BinaryHeap::new(),
            script: Vec::new(),
            n_planned: 0,
            stirred: Vec::new(),
            is_stirred: vec![false; options.ranks],
            options,
        }
    }

    pub fn now(&self) -> Time {
        Time(self.clock.load(Ordering::Relaxed))
    }

    /// Lets everything happen that is due now.
    pub fn settle(&mut self) {
        self.happen_until(self.now());
    }

    /// Moves the clock to `to`, letting everything on the way happen at its moment.
    pub fn advance_to(&mut self, to: Time) {
        assert!(self.now() <= to, "the clock stands at {} and can't go back to {}", At(self.now()), At(to));
        assert!(to != Time::NEVER, "the clock can't be moved to the moment that never comes");
        self.happen_until(to);
        self.clock.store(to.0, Ordering::Relaxed);
    }

    pub fn next_event(&mut self) -> Option<Time> {
        self.settle();
        self.agenda.peek().map(|Reverse((at, _, _))| *at)
    }

    /// The ranks to which something happened since this was last asked, in the order in which it did.
    pub fn take_stirred(&mut self, into: &mut Vec<usize>) {
        self.stirred.iter().for_each(|&rank| self.is_stirred[rank] = false);
        into.append(&mut self.stirred);
    }

    pub fn plan(&mut self, at: Option<Time>, event: Event) {
        if let Some(at) = at.filter(|&at| at != Time::NEVER) {
            self.agenda.push(Reverse((at, self.n_planned, event)));
            self.n_planned += 1;
        }
    }

    pub fn inject(&mut self, fault: Fault) {
        fault.validate(self.options.ranks);
        self.faults.note(fault);
        let now = self.now();
        let at = match fault {
            Fault::Kill { at, .. } | Fault::Cut { at, .. } => at,
            Fault::Stop { from, .. } | Fault::Partition { from, .. } => from,
            Fault::Straggle { from, .. } | Fault::DropNotices { from, .. } => from,
        };
        self.script.push(fault);
        self.plan(Some(at.max(now)), Event::Fault(self.script.len() - 1));
        if let Fault::Stop { rank, until, .. } = fault {
            self.plan(Some(until.max(now)), Event::RunsAgain(rank));
        }
    }

    pub fn pair(&self, end: End) -> (usize, usize) {
        let ranks = self.connections[end.connection as usize].ranks;
        (ranks[usize::from(end.side)], ranks[usize::from(1 - end.side)])
    }

    /// What is known at an end of the other.
    pub fn standing(&self, end: End) -> Standing {
        self.connections[end.connection as usize].standing[usize::from(end.side)]
    }

    pub fn profile(&self, from: usize, to: usize) -> LinkProfile {
        match (self.overrides.get(&(from, to)), &self.profile_of) {
            (Some(profile), _) => *profile,
            (None, Some(profile_of)) => profile_of(from, to),
            (None, None) => self.options.link,
        }
    }

    /// The wire that leads away from an end, if anything was ever sent over it.
    pub fn wire_made(&mut self, end: End) -> Option<&mut Wire> {
        self.connections[end.connection as usize].wires[usize::from(end.side)].as_deref_mut()
    }

    /// The wire that leads away from an end.
    pub fn wire(&mut self, end: End) -> &mut Wire {
        if self.wire_made(end).is_none() {
            let (from, to) = self.pair(end);
            let profile = self.profile(from, to);
            profile.validate();
            let mut wire = Wire::new(profile, Random::of_pair(self.options.seed, from, to));
            wire.passage = self.ports.passage(from, to);
            self.connections[end.connection as usize].wires[usize::from(end.side)] = Some(Box::new(wire));
        }
        self.wire_made(end).expect("the wire was just made")
    }

    /// Sends post from an end, as fast as the wire's latency and jitter have it.
    pub fn post(&mut self, end: End, post: Post) {
        let now = self.now();
        let late = self.faults.lateness(self.pair(end).0, now);
        let wire = self.wire(end);
        let arrival = now.after(wire.profile.flight(&mut wire.random)).after(late);
        let due = wire.post.push(arrival, post);
        self.plan(due, Event::Post(end));
    }

    /// Lets the peer of `end`, whose rank is dead, find that out after the delay that takes.
    pub fn mourn(&mut self, end: End) {
        let connection = &self.connections[end.connection as usize];
        let (mine, theirs) = (usize::from(end.side), usize::from(end.other().side));
        if connection.left[mine] || connection.left[theirs] || self.standing(end.other()) != Standing::Open {
            return;
        }
        let (dead, _) = self.pair(end);
        let death = self.faults.deaths[&dead];
        let noticed = death.max(self.now()).after(self.options.detection);
        let text = format!("rank {dead} was killed at {} (simulated)", At(death));
        self.end_wire(end, noticed, Standing::Killed(death));
        let post = self.wire(end).post.push(noticed, Post::Control(ControlEvent::Died(text)));
        self.plan(post, Event::Post(end));
    }

    /// Notes that an end's link is dropped, and frees what the connection holds once both are.
    pub fn retire(&mut self, end: End) {
        let connection = &mut self.connections[end.connection as usize];
        connection.dropped[usize::from(end.side)] = true;
        if connection.dropped == [true, true] {
            connection.wires = [None, None];
        }
    }

    pub fn ends_where(&self, chosen: impl Fn(usize, usize) -> bool) -> Vec<End> {
        let ends = (0..self.connections.len() as u32).flat_map(|c| [0, 1].map(|side| End { connection: c, side }));
        ends.filter(|&end| {
            let (from, to) = self.pair(end);
            chosen(from, to)
        })
        .collect()
    }

    /// One line per wire that isn't idle, then one per port that is waited for.
    pub fn busy_wires(&self) -> String {
        let ends = self.ends_where(|_, _| true);
        let lines = ends.into_iter().filter_map(|end| {
            let wire = self.connections[end.connection as usize].wires[usize::from(end.side)].as_deref()?;
            let ((from, to), standing) = (self.pair(end), self.standing(end.other()));
            wire.is_busy().then(|| format!("{from}->{to} {standing:?}, {wire}\n"))
        });
        lines.chain([self.ports.busy()]).collect()
    }

    pub fn stir(&mut self, rank: usize) {
        if !self.is_stirred[rank] {
            self.is_stirred[rank] = true;
            self.stirred.push(rank);
        }
    }
}
