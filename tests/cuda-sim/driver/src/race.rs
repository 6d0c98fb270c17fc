//! Races: two streams touch the same bytes, one of them writes, and nothing orders them.
//!
//! Every copy and fill that runs is noted with its stream's clock. What kernels touch isn't known, and is left out.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Clock;
use crate::error::say;

static RACES: AtomicU64 = AtomicU64::new(0);

/// How many races were seen in this process.
pub fn count() -> u64 {
    RACES.load(Ordering::Relaxed)
}

/// One more was seen.
pub fn found(one: &Access, other: &Access) {
    RACES.fetch_add(1, Ordering::Relaxed);
    say(format_args!("race: {one} and {other} have no order: an event, a wait or a synchronisation is missing"));
}

/// The latest accesses of an allocation.
#[derive(Default)]
pub struct Accesses(Vec<Access>);

/// How many are kept for each allocation; the oldest go first.
const KEPT: usize = 256;

/// One operation's access.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Access {
    pub addresses: Range<u64>,
    /// The stream, and the number of its operation.
    pub stream: usize,
    pub nth: u64,
    pub writes: bool,
}

impl std::fmt::Display for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Access { addresses, stream, nth, writes } = self;
        let kind = if *writes { "write" } else { "read" };
        write!(f, "the {kind} of {:#x}..{:#x} (operation {nth} of stream {stream:#x})", addresses.start, addresses.end)
    }
}

impl Access {
    /// Whether both touch a byte, and one writes it.
    pub fn meets(&self, other: &Access) -> bool {
        (self.writes || other.writes)
            && self.addresses.start < other.addresses.end
            && other.addresses.start < self.addresses.end
    }

    fn contains(&self, other: &Access) -> bool {
        self.addresses.start <= other.addresses.start && other.addresses.end <= self.addresses.end
    }
}

impl Accesses {
    /// Notes an access by an operation that knows `clock`. Returns an earlier one that it races with.
    pub fn note(&mut self, access: Access, clock: &Clock) -> Option<Access> {
        let before = |other: &Access| other.stream == access.stream || clock.covers(other.stream, other.nth);
        let race = self.0.iter().find(|other| access.meets(other) && !before(other)).cloned();
        // Whoever comes after this access comes after what it makes redundant, or races with this access, too.
        let redundant = |other: &Access| before(other) && access.contains(other) && (access.writes || !other.writes);
        self.0.retain(|other| !(redundant(other) && (access.writes || other.stream == access.stream)));
        if self.0.len() == KEPT {
            self.0.remove(0);
        }
        self.0.push(access);
        race
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(addresses: Range<u64>, stream: usize, clock: &mut Clock, writes: bool) -> Access {
        Access { addresses, stream, nth: clock.tick(stream), writes }
    }

    #[test]
    fn what_nothing_orders_races_if_one_writes() {
        let (mut one, mut other, mut noted) = (Clock::default(), Clock::default(), Accesses::default());
        assert_eq!(noted.note(access(0..10, 1, &mut one, false), &one), None);
        assert_eq!(noted.note(access(5..15, 2, &mut other, false), &other), None, "both read");
        assert_eq!(noted.note(access(10..15, 1, &mut one, false), &one), None);
        let race = noted.note(access(9..10, 2, &mut other, true), &other).expect("one reads what the other writes");
        assert_eq!((race.addresses, race.stream), (0..10, 1));
        other.join(&one);
        assert_eq!(noted.note(access(0..20, 2, &mut other, true), &other), None, "it came before");
        assert_eq!(noted.0.len(), 1, "the rest is redundant");
        assert!(noted.note(access(19..20, 1, &mut one, false), &one).is_some(), "one doesn't know of the other");
    }
}
