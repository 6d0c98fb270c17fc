//! The handle that tests hold: makes links, moves the clock, takes faults, says what comes next.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::state::{Connection, End, State};
use super::wire::Standing;
use super::{Fault, LinkProfile, SimLink, SimOptions};
use crate::clock::{Clock, Time};

/// A network of simulated wires between ranks, shared by all that hold a clone of it.
///
/// It may be used from several threads; it repeats itself only when the sequence of calls does, so in one.
#[derive(Clone)]
pub struct SimNetwork {
    state: Arc<Mutex<State>>,
    clock: Arc<AtomicU64>,
    ranks: usize,
    seed: u64,
    horizon: Time,
}

impl SimNetwork {
    /// A network at moment zero, on which nothing has happened.
    ///
    /// # Panics
    ///
    /// Where an option is out of its range: no ranks, or a frame, piece, window or bandwidth of zero.
    #[must_use]
    pub fn new(options: SimOptions) -> SimNetwork {
        options.validate();
        let clock = Arc::new(AtomicU64::new(0));
        let (ranks, seed, horizon) = (options.ranks, options.seed, Time(0).after(options.horizon));
        let state = Arc::new(Mutex::new(State::new(options, Arc::clone(&clock))));
        SimNetwork { state, clock, ranks, seed, horizon }
    }

    /// How many ranks there are.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// The seed that the network was made with.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The virtual clock, which moves only under [`SimNetwork::advance_to`] and [`super::run`].
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock::Virtual(Arc::clone(&self.clock))
    }

    /// The present moment.
    #[must_use]
    pub fn now(&self) -> Time {
        self.clock().now()
    }

    /// The end at `me` of a link to `peer`.
    ///
    /// Where several are made between the same two ranks, the first made by one joins the first made by the other, and
    /// so on. What is sent before the other end is made waits for it.
    ///
    /// # Panics
    ///
    /// Where a rank isn't in the network, or `me` is `peer`.
    #[must_use]
    pub fn link(&self, me: usize, peer: usize) -> SimLink {
        assert!(me < self.ranks && peer < self.ranks, "no link {me}->{peer} among {} ranks", self.ranks);
        assert!(me != peer, "rank {me} has no link to itself");
        let mut state = self.lock();
        state.settle();
        if let Some(waiting) = state.unmatched.get_mut(&(me, peer)) {
            let connection = waiting.pop_front().expect("an entry without connections is removed");
            if waiting.is_empty() {
                state.unmatched.remove(&(me, peer));
            }
            drop(state);
            return SimLink::new(self.clone(), End { connection, side: 1 });
        }
        let connection = u32::try_from(state.connections.len()).expect("fewer than 2^32 connections are made");
        state.connections.push(Connection {
            ranks: [me, peer],
            standing: [Standing::Open; 2],
            left: [false; 2],
            dropped: [false; 2],
            wires: [None, None],
        });
        state.unmatched.entry((peer, me)).or_default().push_back(connection);
        let end = End { connection, side: 0 };
        if state.faults.deaths.contains_key(&peer) {
            state.mourn(end.other());
        }
        drop(state);
        SimLink::new(self.clone(), end)
    }

    /// Sets how the wire `from -> to` behaves for what is sent over it from now on.
    ///
    /// # Panics
    ///
    /// Where the bandwidth or the slowdown is zero.
    pub fn set_link(&self, from: usize, to: usize, profile: LinkProfile) {
        profile.validate();
        let mut state = self.lock();
        state.overrides.insert((from, to), profile);
        for end in state.ends_where(|f, t| (f, t) == (from, to)) {
            if let Some(wire) = state.wire_made(end) {
                wire.profile = profile;
            }
        }
    }

    /// Sets how wires behave that nothing was sent over yet and that [`SimNetwork::set_link`] doesn't name:
    /// `profile_of(from, to)`.
    pub fn set_links(&self, profile_of: impl Fn(usize, usize) -> LinkProfile + Send + 'static) {
        self.lock().profile_of = Some(Box::new(profile_of));
    }

    /// Adds a fault to the script.
    ///
    /// # Panics
    ///
    /// Where it names a rank that isn't in the network, or a link of a rank to itself.
    pub fn inject(&self, fault: Fault) {
        self.lock().inject(fault);
    }

    /// Kills a rank: see [`Fault::Kill`].
    pub fn kill(&self, rank: usize, at: Time) {
        self.inject(Fault::Kill { rank, at });
    }

    /// Stops a rank for a while or, `until` being [`Time::NEVER`], for good: see [`Fault::Stop`].
    pub fn stop(&self, rank: usize, from: Time, until: Time) {
        self.inject(Fault::Stop { rank, from, until });
    }

    /// Parts two ranks for a while or, `until` being [`Time::NEVER`], for good: see [`Fault::Partition`].
    pub fn partition(&self, a: usize, b: usize, from: Time, until: Time) {
        self.inject(Fault::Partition { a, b, from, until });
    }

    /// Breaks the connections between two ranks: see [`Fault::Cut`].
    pub fn cut(&self, a: usize, b: usize, at: Time) {
        self.inject(Fault::Cut { a, b, at });
    }

    /// Makes what a rank sends late by `by`: see [`Fault::Straggle`].
    pub fn straggle(&self, rank: usize, from: Time, until: Time, by: Duration) {
        self.inject(Fault::Straggle { rank, from, until, by });
    }

    /// Loses notices from one rank to another: see [`Fault::DropNotices`].
    pub fn drop_notices(&self, source: usize, target: usize, from: Time, until: Time) {
        self.inject(Fault::DropNotices { source, target, from, until });
    }

    /// Whether a rank runs at `now`: it is neither dead nor stopped.
    #[must_use]
    pub fn runnable(&self, rank: usize, now: Time) -> bool {
        self.lock().faults.runs_from(rank, now) == now
    }

    /// Whether a rank will run at some moment from `now` on, as far as the script says.
    #[must_use]
    pub fn runs_again(&self, rank: usize, now: Time) -> bool {
        self.lock().faults.runs_from(rank, now) != Time::NEVER
    }

    /// Whether a rank has been killed by now.
    #[must_use]
    pub fn is_dead(&self, rank: usize) -> bool {
        self.lock().faults.deaths.contains_key(&rank)
    }

    /// The earliest moment after now at which something arrives or goes wrong by itself.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        self.lock().next_event()
    }

    /// Moves the clock, letting everything on the way happen at its moment.
    ///
    /// # Panics
    ///
    /// Where `to` is in the past, or [`Time::NEVER`].
    pub fn advance_to(&self, to: Time) {
        self.lock().advance_to(to);
    }

    /// Appends the ranks to which something happened since this was last asked (an arrival, a credit, a control event, or
    /// running again), each once.
    pub fn take_stirred(&self, into: &mut Vec<usize>) {
        let mut state = self.lock();
        state.settle();
        state.take_stirred(into);
    }

    /// The last events, oldest first, one line each; then one line per wire that something is under way on or waits to be
    /// read from.
    #[must_use]
    pub fn trace(&self) -> String {
        let state = self.lock();
        format!("{}{}", state.trace, state.busy_wires())
    }

    pub(super) fn horizon(&self) -> Time {
        self.horizon
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for SimNetwork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimNetwork").field("ranks", &self.ranks).field("seed", &self.seed).finish_non_exhaustive()
    }
}
