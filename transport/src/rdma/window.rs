//! Room in the peer's slots, and what this end owes the peer: `README.md`, "credits".

#![forbid(unsafe_code)]

use super::immediate::{NUMBERS, extend};

/// The sender's account: frames begun, and frames of these that the receiver has given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Window {
    slots: u64,
    next: u64,
    consumed: u64,
}

/// The receiver's account: frames it has given back, and what of that the sender has been told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Owed {
    slots: u64,
    consumed: u64,
    told: u64,
    /// The sender waits to hear that the frames below this number have been given back.
    awaited: u64,
}

impl Window {
    pub(super) fn new(slots: u64) -> Window {
        assert!(slots.is_power_of_two() && slots <= NUMBERS / 4);
        Window { slots, next: 0, consumed: 0 }
    }

    /// How many frames may be begun.
    #[inline]
    pub(super) fn room(&self) -> u64 {
        self.slots - (self.next - self.consumed)
    }

    /// The number of the next frame.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Whether the frame of that number has been given back.
    #[inline]
    pub(super) fn has_come_back(&self, frame: u64) -> bool {
        frame < self.consumed
    }

    /// The frame called [`Window::next`] is under way.
    #[inline]
    pub(super) fn begin(&mut self) {
        assert!(self.room() > 0, "a frame was begun without a credit");
        self.next += 1;
    }

    /// The receiver says that it has given back all frames below that number, of which `said` are the low bits. News may
    /// come out of order; `false` if no sound receiver says so.
    #[inline]
    pub(super) fn returned(&mut self, said: u32) -> bool {
        let consumed = extend(said, self.consumed);
        if consumed > self.next {
            // A number from before the last one, seen as far ahead, is old news only if it is near.
            return false;
        }
        self.consumed = self.consumed.max(consumed);
        true
    }
}

impl Owed {
    pub(super) fn new(slots: u64) -> Owed {
        Owed { slots, consumed: 0, told: 0, awaited: 0 }
    }

    /// A frame has been given back.
    #[inline]
    pub(super) fn consume(&mut self) {
        self.consumed += 1;
    }

    /// The sender waits to hear of the last frame given back.
    #[inline]
    pub(super) fn hurry(&mut self) {
        self.awaited = self.consumed;
    }

    /// Whether the sender should be told, though nothing goes its way: half of the slots are free again, or it waits for it.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.consumed - self.told >= (self.slots / 2).max(1) || self.told < self.awaited
    }

    /// What to tell the sender; the account assumes that it is told.
    #[inline]
    pub(super) fn tell(&mut self) -> u64 {
        self.told = self.consumed;
        self.consumed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever the order of sending, reading and telling, and though news overtake each other: a slot is never
        /// written before it was given back, news without a frame are few, and the sender is never stuck for good.
        #[test]
        fn slots_are_reused_only_when_given_back(
            log_slots in 0u32..6,
            steps in prop::collection::vec((0u8..4, any::<prop::sample::Index>()), 1..400),
        ) {
            let slots = 1u64 << log_slots;
            let (mut window, mut owed) = (Window::new(slots), Owed::new(slots));
            let (mut arrived, mut given_back) = (0u64, 0u64);
            let mut news: Vec<u32> = Vec::new();
            for (kind, which) in steps {
                match kind {
                    0 if window.room() > 0 => {
                        prop_assert!(window.next() < given_back + slots, "slot written too early");
                        window.begin();
                        arrived += 1;
                    }
                    1 if given_back < arrived => {
                        given_back += 1;
                        owed.consume();
                        if owed.is_due() {
                            news.push(owed.tell() as u32);
                        }
                    }
                    2 if !news.is_empty() => {
                        let said = news.swap_remove(which.index(news.len()));
                        prop_assert!(window.returned(said));
                    }
                    // On a frame the other way, which came behind them.
                    3 => {
                        for said in news.drain(..).chain([owed.tell() as u32]) {
                            prop_assert!(window.returned(said));
                        }
                    }
                    _ => {}
                }
                prop_assert!(news.len() <= 4 || slots <= 2, "{} news wait", news.len());
            }
            for said in news {
                prop_assert!(window.returned(said));
            }
            while given_back < arrived {
                given_back += 1;
                owed.consume();
                if owed.is_due() {
                    prop_assert!(window.returned(owed.tell() as u32));
                }
            }
            prop_assert!(window.room() > 0, "stuck");
        }
    }

    /// Who waits for a frame is told of it at once, and of no frame twice: unread news are never more than slots.
    #[test]
    fn a_sender_that_waits_is_told_at_once() {
        let (mut window, mut owed) = (Window::new(16), Owed::new(16));
        for frame in 0..100 {
            window.begin();
            assert!(!window.has_come_back(frame));
            owed.consume();
            assert!(!owed.is_due());
            owed.hurry();
            assert!(owed.is_due());
            assert!(window.returned(owed.tell() as u32));
            assert!(window.has_come_back(frame) && !window.has_come_back(frame + 1) && !owed.is_due());
        }
    }

    #[test]
    fn nobody_gives_back_what_was_never_sent() {
        let mut window = Window::new(8);
        window.begin();
        assert!(window.returned(1));
        assert!(!window.returned(2));
        assert!(window.returned(0), "old news do no harm");
        assert_eq!(window.room(), 8);
    }
}
