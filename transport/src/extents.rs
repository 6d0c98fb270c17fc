//! Where messages lie in an area that its one writer fills in a circle: each behind the last, over memory that was last
//! touched long ago.
//!
//! Lines that a reader still has in a cache of its own are slow to get back. So a message doesn't go where the last one
//! was, even if that is free.

use std::collections::VecDeque;
use std::ops::Range;

/// Messages begin at cache lines.
const LINE_BYTES: usize = 64;

/// The extents of messages that may still be read.
pub(crate) struct Extents {
    bytes: usize,
    /// Where the next message begins, if it fits there.
    next: usize,
    /// By age: the number of a message, and where it begins.
    live: VecDeque<(u64, usize)>,
}

impl Extents {
    /// Of an empty area.
    pub(crate) fn new(bytes: usize) -> Extents {
        Extents { bytes, next: 0, live: VecDeque::new() }
    }

    /// Where in the front of the area, of so many bytes, a message of that many bytes may lie; `None` while others are in the
    /// way.
    #[inline]
    pub(crate) fn find_within(&self, front: usize, bytes: usize) -> Option<usize> {
        let front = front.min(self.bytes);
        let behind = self.next + bytes <= front;
        let Some((_, oldest)) = self.live.front() else {
            return if behind { Some(self.next) } else { (bytes <= front).then_some(0) };
        };
        // Never up to the oldest: an area that is full must not look like an empty one.
        if self.next > *oldest {
            if behind { Some(self.next) } else { (bytes < *oldest).then_some(0) }
        } else {
            (self.next + bytes < *oldest && self.next + bytes <= front).then_some(self.next)
        }
    }

    /// Takes what [`Extents::find_within`] has found, for the message of that number. Numbers grow.
    #[inline]
    pub(crate) fn take(&mut self, number: u64, place: &Range<usize>) {
        self.live.push_back((number, place.start));
        self.next = place.end.next_multiple_of(LINE_BYTES);
    }

    /// Where nobody reads a message any more: the next one goes to the front.
    #[inline]
    pub(crate) fn restart(&mut self) {
        if self.live.is_empty() {
            self.next = 0;
        }
    }

    /// The number of the oldest message.
    #[inline]
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.live.front().map(|(number, _)| *number)
    }

    /// Nobody reads messages below that number any more.
    #[inline]
    pub(crate) fn release_below(&mut self, number: u64) {
        while self.live.front().is_some_and(|(live, _)| *live < number) {
            self.live.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the lengths and whenever they are released: extents are within the area and apart, and what fits into
        /// an empty area gets its place when all is released.
        #[test]
        fn live_extents_are_apart(steps in prop::collection::vec((0usize..512, 0u64..4, any::<bool>(), any::<bool>()), 1..200)) {
            const BYTES: usize = 1024;
            const FRONT: usize = 512;
            let mut extents = Extents::new(BYTES);
            let mut live: VecDeque<(u64, Range<usize>)> = VecDeque::new();
            for (number, (bytes, released, in_front, restarts)) in steps.into_iter().enumerate() {
                for _ in 0..released {
                    live.pop_front();
                }
                extents.release_below(live.front().map_or(u64::MAX, |(number, _)| *number));
                if restarts {
                    extents.restart();
                }
                let front = if in_front { FRONT } else { BYTES };
                let found = extents.find_within(front, bytes);
                prop_assert!(found.is_some() || !live.is_empty(), "{bytes} bytes have no place in an empty area");
                let Some(start) = found else { continue };
                let place = start..start + bytes;
                prop_assert!(place.end <= front && start.is_multiple_of(LINE_BYTES));
                for (_, other) in &live {
                    prop_assert!(place.end <= other.start || other.end <= place.start || bytes == 0 || other.is_empty());
                }
                extents.take(number as u64, &place);
                live.push_back((number as u64, place));
            }
        }
    }

    #[test]
    fn an_area_is_used_in_a_circle() {
        let mut extents = Extents::new(256);
        for number in 0..12 {
            extents.release_below(number);
            let start = extents.find_within(256, 64).unwrap();
            assert_eq!(start, number as usize * 64 % 256);
            extents.take(number, &(start..start + 64));
        }
    }
}
