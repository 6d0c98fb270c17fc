//! Whether to ask the receiver to touch the lines that it has read, so that they are quick to get back.
//!
//! Where it matters, a line that was only read takes ten times as long to write as one that was touched; elsewhere touching
//! costs some percent. Which of the two it is changes while ranks run, for instance when a virtual machine's processors move.
//! So the sender takes the time of a payload now and then.

use crate::clock::{Clock, Time};

/// Payloads from this length on say how slow lines are to write.
const TIMED_BYTES: usize = 4 << 10;
/// Of these, one out of so many is timed.
const TIMED_EVERY: u32 = 8;
/// A line that takes longer was in the receiver's cache. From memory it takes less.
const SLOW_LINE_NS: u128 = 14;
/// So many timed payloads in a row must have been slow.
const SLOW_PAYLOADS: u32 = 2;
/// How many frames the receiver is asked for, until it is tried without.
const ASKED_FRAMES: u32 = 1024;

/// Meanwhile payloads stay in so much of their area: touched lines are best kept in the caches of the two.
const ASKED_BYTES: usize = 512 << 10;

/// What a sender knows of its lines.
pub(super) struct Asking {
    /// Bytes of the payloads' area that have not been written yet: their pages are slow, once.
    fresh: usize,
    /// Frames for which the receiver is still asked.
    left: u32,
    payloads: u32,
    slow: u32,
}

impl Asking {
    pub(super) fn new(area_bytes: usize) -> Asking {
        Asking { fresh: area_bytes, left: 0, payloads: 0, slow: 0 }
    }

    /// Whether the receiver is asked to touch the next frame.
    #[inline]
    pub(super) fn next(&mut self) -> bool {
        let asks = self.left > 0;
        self.left = self.left.saturating_sub(1);
        asks
    }

    /// How much of the payloads' area is to be used.
    #[inline]
    pub(super) fn front(&self) -> usize {
        if self.left > 0 { ASKED_BYTES } else { usize::MAX }
    }

    /// The time at which the writing of a payload begins, if it is to be timed.
    #[inline]
    pub(super) fn start(&mut self, bytes: usize) -> Option<Time> {
        if bytes < TIMED_BYTES || self.left > 0 {
            return None;
        }
        if self.fresh > 0 {
            self.fresh = self.fresh.saturating_sub(bytes);
            return None;
        }
        self.payloads = self.payloads.wrapping_add(1);
        // Once there is a doubt, every one.
        (self.slow > 0 || self.payloads.is_multiple_of(TIMED_EVERY)).then(|| Clock::Real.now())
    }

    /// A payload that began at `start` has been written.
    #[inline]
    pub(super) fn end(&mut self, start: Option<Time>, bytes: usize) {
        if let Some(start) = start {
            self.note(Clock::Real.now().since(start).as_nanos(), bytes);
        }
    }

    fn note(&mut self, nanoseconds: u128, bytes: usize) {
        let lines = bytes.div_ceil(super::LINE_BYTES) as u128;
        self.slow = if nanoseconds > SLOW_LINE_NS * lines { self.slow + 1 } else { 0 };
        if self.slow == SLOW_PAYLOADS {
            (self.slow, self.left) = (0, ASKED_FRAMES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_for_some_time_after_slow_payloads_only() {
        let mut asking = Asking::new(0);
        for nanoseconds in [100, 64 * 20, 64 * 5, 64 * 20] {
            asking.note(nanoseconds, 4096);
            assert!(!asking.next(), "one slow payload may be a processor that was taken away");
        }
        asking.note(64 * 20, 4096);
        assert_eq!((0..2 * ASKED_FRAMES).filter(|_| asking.next()).count(), ASKED_FRAMES as usize);
    }

    #[test]
    fn few_payloads_are_timed() {
        let mut asking = Asking::new(2 * TIMED_BYTES);
        assert!((0..2).all(|_| asking.start(TIMED_BYTES).is_none()));
        assert!(asking.start(TIMED_BYTES - 1).is_none());
        let timed = (0..80).filter(|_| asking.start(TIMED_BYTES).is_some()).count();
        assert_eq!(timed, 10);
    }
}
