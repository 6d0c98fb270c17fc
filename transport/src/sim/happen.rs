//! What happens when its moment comes: frames and post arrive or are held, ranks die, connections break.

use std::cmp::Reverse;
use std::sync::atomic::Ordering;

use super::fault::Fault;
use super::state::{End, Event, State};
use super::trace::{At, Happening};
use super::wire::{Flight, Pipe, Post, Standing, Wire};
use crate::clock::Time;
use crate::control::ControlEvent;

impl State {
    /// Lets everything happen that is on the agenda up to `to`, the clock showing each event's moment.
    pub fn happen_until(&mut self, to: Time) {
        while let Some(&Reverse((at, _, event))) = self.agenda.peek() {
            if at > to {
                return;
            }
            self.agenda.pop();
            self.clock.store(at.max(self.now()).0, Ordering::Relaxed);
            match event {
                Event::Frames(end) => {
                    let next = self.empty(end, |wire| &mut wire.frames, State::land);
                    self.plan(next, event);
                }
                Event::Post(end) => {
                    let next = self.empty(end, |wire| &mut wire.post, State::deliver);
                    self.plan(next, event);
                }
                Event::Enter(end) => {
                    let next = self.enter_ports(end);
                    self.plan(next, event);
                }
                Event::Port(port) => {
                    let next = self.serve(port);
                    self.plan(next, event);
                }
                Event::Fault(index) => self.strike(self.script[index]),
                Event::RunsAgain(rank) => {
                    self.trace.note(at, (rank, rank), Happening::RunsAgain);
                    self.stir(rank);
                }
            }
        }
    }

    /// Takes out of a pipe what is due, unless a partition holds it, and answers when to look again.
    fn empty<T>(
        &mut self,
        end: End,
        pipe: fn(&mut Wire) -> &mut Pipe<T>,
        land: fn(&mut State, End, T),
    ) -> Option<Time> {
        let (now, (from, to)) = (self.now(), self.pair(end));
        let passes = self.faults.passes_from(from, to, now);
        if pipe(self.wire_made(end)?).due()? > now {
            return None;
        }
        loop {
            let wire = self.wire_made(end)?;
            let latency = wire.profile.latency;
            let due = pipe(wire).due()?;
            if due > now {
                return Some(due);
            }
            if passes > now {
                let until = passes.after(latency);
                pipe(wire).hold(until);
                self.trace.note(now, (from, to), Happening::Held(passes));
                return Some(until);
            }
            let item = pipe(wire).pop()?;
            land(self, end, item);
        }
    }

    fn land(&mut self, end: End, flight: Flight) {
        let (now, pair) = (self.now(), self.pair(end));
        let connection = &mut self.connections[end.connection as usize];
        let receiver = usize::from(end.other().side);
        let gone = connection.left[receiver] || self.faults.deaths.contains_key(&pair.1);
        let Some(wire) = connection.wires[usize::from(end.side)].as_deref_mut() else { return };
        match flight {
            Flight::Begin(frame, _) if gone => {
                let happening = Happening::FrameVanishes(frame.channel, frame.stamp, frame.bytes.len());
                return self.trace.note(now, pair, happening);
            }
            Flight::More(_) if gone => return,
            Flight::Begin(frame, bytes) => {
                let happening = Happening::FrameArrives(frame.channel, frame.stamp, frame.bytes.len());
                wire.delivered += bytes as u64;
                wire.arrived.push_back(frame);
                self.trace.note(now, pair, happening);
            }
            Flight::More(bytes) => {
                wire.delivered += bytes as u64;
                self.trace.note(now, pair, Happening::PieceArrives(bytes));
            }
            Flight::End(standing) => {
                if connection.standing[receiver] == Standing::Open {
                    connection.standing[receiver] = standing;
                }
                if std::mem::take(&mut wire.goodbye_waits) {
                    wire.inbox.push_back(ControlEvent::Left);
                    self.trace.note(now, pair, Happening::LeftArrives);
                }
            }
        }
        self.stir(pair.1);
    }

    fn deliver(&mut self, end: End, post: Post) {
        let (now, pair) = (self.now(), self.pair(end));
        match post {
            Post::Credit(bytes) => {
                let wire = self.wire(end.other());
                wire.in_flight = wire.in_flight.checked_sub(bytes).expect("credit is for what was sent");
            }
            Post::Control(ControlEvent::Left) if self.standing(end.other()) == Standing::Open => {
                self.wire(end).goodbye_waits = true;
                return;
            }
            Post::Control(event) => {
                let happening = match &event {
                    ControlEvent::Notice(notice) => Happening::NoticeArrives(notice.len()),
                    ControlEvent::Left | ControlEvent::Failed { .. } => Happening::LeftArrives,
                    ControlEvent::Died(_) => Happening::DeathArrives,
                };
                self.trace.note(now, pair, happening);
                self.wire(end).inbox.push_back(event);
            }
        }
        self.stir(pair.1);
    }

    fn strike(&mut self, fault: Fault) {
        let now = self.now();
        match fault {
            Fault::Kill { rank, .. } if self.faults.deaths.contains_key(&rank) => return,
            _ => self.trace.note(now, (0, 0), Happening::Struck(fault)),
        }
        match fault {
            Fault::Kill { rank, .. } => {
                self.faults.deaths.insert(rank, now);
                let ends = self.ends_where(|from, _| from == rank);
                ends.into_iter().for_each(|end| self.mourn(end));
            }
            Fault::Cut { a, b, .. } => {
                let ends = self.ends_where(|from, to| (from, to) == (a, b) || (from, to) == (b, a));
                ends.into_iter().for_each(|end| self.cut(end));
            }
            Fault::Stop { .. } | Fault::Partition { .. } | Fault::Straggle { .. } | Fault::DropNotices { .. } => {}
        }
    }

    /// Breaks a connection as seen from `end`: loses what is under way to it, and tells its rank.
    fn cut(&mut self, end: End) {
        let (now, (me, peer)) = (self.now(), self.pair(end));
        let connection = &mut self.connections[end.connection as usize];
        let side = usize::from(end.side);
        if connection.standing[side] != Standing::Open || connection.left[side] {
            return;
        }
        connection.standing[side] = Standing::Cut(now);
        let text = format!("the connection to rank {peer} was cut at {} (simulated)", At(now));
        let arriving = self.wire(end.other());
        arriving.frames.clear();
        arriving.passage.iter_mut().for_each(|passage| passage.lose());
        arriving.post.clear();
        arriving.inbox.push_back(ControlEvent::Died(text));
        self.trace.note(now, (peer, me), Happening::DeathArrives);
        self.stir(me);
    }
}
