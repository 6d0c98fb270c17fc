//! Ports: what several wires share, and so wait for each other at: a network adapter's two directions, a switch's uplink.
//!
//! ```text
//!   rank 0  wire 0->2 --.                                .-> rank 2
//!                        >-- host A's adapter, out --.  /
//!   rank 1  wire 1->3 --'                             >--- host B's adapter, in ----> rank 3
//!   rank 4  wire 4->3 ----- host C's adapter, out ---'
//! ```
//!
//! A piece of a frame takes the ports of its wire's route in turn. A port carries one piece at a time, in the order in
//! which they come, at its own rate, so that wires that are busy together share it. When a port begins with a piece, the
//! next one on the way may begin, too: switches pass on what has come so far, and a piece that finds all of its way free
//! takes as long as on the slowest part, not the sum. Who waits for a port keeps none of those before it, as if there were
//! room for everything between them; what is on the way is bounded by the wires' windows.
//!
//! Post (credits, notices, goodbyes) takes no room in ports, and a wire without a route knows nothing of them.

use std::collections::VecDeque;
use std::time::Duration;

use super::state::{End, Event, State};
use super::wire::{Flight, Pipe, Standing};
use super::{LinkProfile, SimNetwork};
use crate::clock::Time;

/// A port of one simulated network, made by [`SimNetwork::add_port`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Port(pub(super) u32);

/// What a port is called, and what it has carried so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortUse {
    /// Its name.
    pub name: String,
    /// Bytes of frames that it has begun to carry.
    pub bytes: u64,
    /// How long it takes, or took, to carry them.
    pub busy: Duration,
}

impl SimNetwork {
    /// A new port, which carries that many bytes in a second; nothing goes through it until a route says so.
    ///
    /// # Panics
    ///
    /// Where the bandwidth is zero: see [`SimNetwork::close_port`] for a port that carries nothing.
    pub fn add_port(&self, name: &str, bytes_per_second: u64) -> Port {
        assert!(bytes_per_second > 0, "the port {name} of 0 B/s never delivers: close it");
        let mut state = self.lock();
        let number = u32::try_from(state.ports.all.len()).expect("fewer than 2^32 ports are made");
        let used = PortUse { name: name.to_owned(), bytes: 0, busy: Duration::ZERO };
        let rate = LinkProfile { bytes_per_second, ..LinkProfile::instant() };
        state.ports.all.push(Shared { used, rate, free_from: Time(0), waiting: VecDeque::new(), is_planned: false });
        Port(number)
    }

    /// Sets through which ports frames go on wires that nothing was sent over yet: `route_of(from, to)`, in the order in
    /// which they are passed; a port that is named twice carries everything twice.
    ///
    /// # Panics
    ///
    /// When a frame is first sent over such a wire, where the route names a port of another network.
    pub fn set_routes(&self, route_of: impl Fn(usize, usize) -> Vec<Port> + Send + 'static) {
        self.lock().ports.route_of = Some(Box::new(route_of));
    }

    /// Makes a port slow for a while or, `until` being [`Time::NEVER`], for good: what it begins with then takes it that many
    /// times longer.
    ///
    /// # Panics
    ///
    /// Where the port is of another network, or `times` is zero.
    pub fn slow_port(&self, port: Port, from: Time, until: Time, times: u32) {
        assert!(times > 0, "a port that is 0 times slower: 1 is the speed that it was made with");
        let mut state = self.lock();
        state.ports.check(port);
        state.faults.slow(port, (from, until), times);
    }

    /// Closes a port for a while or, `until` being [`Time::NEVER`], for good, as if its cable were out: it begins with nothing,
    /// and what would pass it waits. Nobody is told.
    ///
    /// # Panics
    ///
    /// Where the port is of another network.
    pub fn close_port(&self, port: Port, from: Time, until: Time) {
        let mut state = self.lock();
        state.ports.check(port);
        state.faults.close(port, (from, until));
    }

    /// What a port has carried.
    ///
    /// # Panics
    ///
    /// Where the port is of another network.
    #[must_use]
    pub fn port_use(&self, port: Port) -> PortUse {
        let mut state = self.lock();
        state.settle();
        state.ports.all[port.0 as usize].used.clone()
    }
}

type RouteOf = Box<dyn Fn(usize, usize) -> Vec<Port> + Send>;

#[derive(Default)]
pub(super) struct Ports {
    all: Vec<Shared>,
    route_of: Option<RouteOf>,
}

struct Shared {
    used: PortUse,
    /// Only its bandwidth counts.
    rate: LinkProfile,
    free_from: Time,
    waiting: VecDeque<Piece>,
    /// Whether the agenda says when to look at those who wait.
    is_planned: bool,
}

/// A piece of a frame on its way through ports.
pub(super) struct Piece {
    pub end: End,
    pub flight: Flight,
    pub bytes: usize,
    /// When its last byte is through all that it has passed.
    pub through: Time,
    /// From there to its arrival.
    pub flies: Duration,
    /// How many ports it has passed.
    pub n_passed: usize,
}

/// A wire's way through ports, and what of it is on the way.
pub(super) struct Passage {
    route: Box<[Port]>,
    /// Pieces that have not come to the first port, each with the moment when it does.
    pub entering: Pipe<Piece>,
    /// How many pieces have not passed the last port.
    n_inside: usize,
    /// What follows the last piece, and when at the earliest.
    ends: Vec<(Time, Standing)>,
    /// Whether all that is inside is lost.
    is_lost: bool,
}

impl Passage {
    /// Puts a piece on the way, which comes to the first port at `at`. Answers as [`Pipe::push`].
    pub fn enter(&mut self, at: Time, piece: Piece) -> Option<Time> {
        self.n_inside += 1;
        self.entering.push(at, piece)
    }

    /// Keeps what ends a wire until the last piece is through; gives it back where none is on the way.
    pub fn ends_after(&mut self, at: Time, standing: Standing) -> Option<(Time, Standing)> {
        if self.n_inside == 0 || self.is_lost {
            return Some((at, standing));
        }
        self.ends.push((at, standing));
        None
    }

    /// Loses all that is on the way.
    pub fn lose(&mut self) {
        (self.is_lost, self.ends) = (true, Vec::new());
    }
}

impl Ports {
    fn check(&self, port: Port) {
        assert!((port.0 as usize) < self.all.len(), "port {} is of another network", port.0);
    }

    /// The way of a wire, if it goes through ports.
    pub fn passage(&self, from: usize, to: usize) -> Option<Box<Passage>> {
        let route: Box<[Port]> = self.route_of.as_ref()?(from, to).into();
        let is_known = |port: &Port| (port.0 as usize) < self.all.len();
        assert!(route.iter().all(is_known), "the route {from}->{to} names a port of another network");
        let passage = Passage { route, entering: Pipe::new(), n_inside: 0, ends: Vec::new(), is_lost: false };
        (!passage.route.is_empty()).then(|| Box::new(passage))
    }

    /// One line per port that pieces wait for.
    pub fn busy(&self) -> String {
        let waited_for = self.all.iter().filter(|port| !port.waiting.is_empty());
        waited_for.map(|port| format!("{}: {} pieces wait for it\n", port.used.name, port.waiting.len())).collect()
    }
}

impl State {
    /// Lets the pieces of a wire that are due come to its first port, and answers when the next one does.
    pub fn enter_ports(&mut self, end: End) -> Option<Time> {
        let now = self.now();
        loop {
            let passage = self.wire_made(end)?.passage.as_deref_mut()?;
            let due = passage.entering.due()?;
            if due > now {
                return Some(due);
            }
            let first = passage.route[0];
            let piece = passage.entering.pop()?;
            self.wait_for(first, piece);
        }
    }

    fn wait_for(&mut self, port: Port, piece: Piece) {
        let now = self.now();
        let shared = &mut self.ports.all[port.0 as usize];
        shared.waiting.push_back(piece);
        if !shared.is_planned {
            shared.is_planned = true;
            let at = shared.free_from.max(now);
            self.plan(Some(at), Event::Port(port));
        }
    }

    /// Lets a port begin with the piece that has waited longest, and answers when to look again.
    pub fn serve(&mut self, port: Port) -> Option<Time> {
        let now = self.now();
        let opens = self.faults.open_from(port, now);
        if opens > now {
            return Some(opens);
        }
        let times = self.faults.slowed(port, now);
        let shared = &mut self.ports.all[port.0 as usize];
        let mut piece = shared.waiting.pop_front()?;
        let occupied = shared.rate.occupancy(piece.bytes).saturating_mul(times);
        shared.free_from = now.after(occupied);
        shared.used.bytes += piece.bytes as u64;
        shared.used.busy += occupied;
        shared.is_planned = !shared.waiting.is_empty();
        let next = shared.is_planned.then_some(shared.free_from);
        piece.through = piece.through.max(shared.free_from);
        piece.n_passed += 1;
        self.pass_on(piece);
        next
    }

    fn pass_on(&mut self, piece: Piece) {
        let end = piece.end;
        let Some(wire) = self.wire_made(end) else { return };
        let passage = wire.passage.as_deref_mut().expect("a piece in a port has a way");
        if let Some(&next) = passage.route.get(piece.n_passed) {
            return self.wait_for(next, piece);
        }
        passage.n_inside -= 1;
        if passage.is_lost {
            return;
        }
        let ends = if passage.n_inside == 0 { std::mem::take(&mut passage.ends) } else { Vec::new() };
        let mut due = wire.frames.push(piece.through.after(piece.flies), piece.flight);
        for (at, standing) in ends {
            due = due.or(wire.frames.push(at, Flight::End(standing)));
        }
        self.plan(due, Event::Frames(end));
    }

    /// Ends a wire behind all that is on it, at `at` or later.
    pub fn end_wire(&mut self, end: End, at: Time, standing: Standing) {
        let wire = self.wire(end);
        let ends = match wire.passage.as_deref_mut() {
            Some(passage) => passage.ends_after(at, standing),
            None => Some((at, standing)),
        };
        if let Some((at, standing)) = ends {
            let due = wire.frames.push(at, Flight::End(standing));
            self.plan(due, Event::Frames(end));
        }
    }
}
