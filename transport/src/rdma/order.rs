//! Putting frames in order that arrive by several ways: `README.md`, "sequence".

#![forbid(unsafe_code)]

use super::immediate::extend;

/// Which frames have arrived, from the next one on; at most as many as there are slots.
#[derive(Clone, Debug)]
pub(super) struct Order {
    next: u64,
    /// By slot: the bytes that were written, plus one; 0 where nothing has arrived.
    arrived: Box<[u32]>,
    /// Where the sender's frames end, if it has said so.
    end: Option<u64>,
}

/// Why a frame can't be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum OrderError {
    #[error("frame {number} came while {next} was the next of {slots} that may come")]
    Beyond { number: u64, next: u64, slots: u64 },
    #[error("frame {0} came twice")]
    Twice(u64),
    #[error("it said that its frames end at {said}, and at {before} before")]
    TwoEnds { said: u64, before: u64 },
}

impl Order {
    pub(super) fn new(slots: u64) -> Order {
        assert!(slots.is_power_of_two());
        Order { next: 0, arrived: vec![0; slots as usize].into(), end: None }
    }

    /// The slot of a frame.
    #[inline]
    pub(super) fn slot(&self, number: u64) -> usize {
        (number as usize) & (self.arrived.len() - 1)
    }

    /// A frame has arrived, of whose number `low` are the low bits; its slot.
    #[inline]
    pub(super) fn arrive(&mut self, low: u32, bytes: u32) -> Result<usize, OrderError> {
        let number = extend(low, self.next);
        let slots = self.arrived.len() as u64;
        if number < self.next || self.next + slots <= number {
            return Err(OrderError::Beyond { number, next: self.next, slots });
        }
        let slot = self.slot(number);
        if self.arrived[slot] != 0 {
            return Err(OrderError::Twice(number));
        }
        self.arrived[slot] = bytes + 1;
        Ok(slot)
    }

    /// The slot of the next frame, and how many bytes were written to it, if it has arrived.
    #[inline]
    pub(super) fn front(&self) -> Option<(usize, u32)> {
        let slot = self.slot(self.next);
        let arrived = self.arrived[slot];
        (arrived != 0).then(|| (slot, arrived - 1))
    }

    /// The next frame has been read.
    #[inline]
    pub(super) fn give_back(&mut self) {
        let slot = self.slot(self.next);
        assert!(self.arrived[slot] != 0, "a frame was given back that has not arrived");
        self.arrived[slot] = 0;
        self.next += 1;
    }

    /// The sender leaves after the frames below that number.
    pub(super) fn end_at(&mut self, low: u32) -> Result<(), OrderError> {
        let said = extend(low, self.next);
        match self.end {
            Some(before) if before != said => Err(OrderError::TwoEnds { said, before }),
            _ => {
                self.end = Some(said);
                Ok(())
            }
        }
    }

    /// Whether the sender has said that it leaves.
    pub(super) fn is_ending(&self) -> bool {
        self.end.is_some()
    }

    /// Whether all has been read that will ever come.
    pub(super) fn is_ended(&self) -> bool {
        self.end == Some(self.next)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Frames that arrive in any order, within the window, are read in theirs, once, with their lengths.
        #[test]
        fn frames_are_read_in_order(
            log_slots in 0u32..6,
            first in prop_oneof![Just(0u64), (1u64 << 30) - 40..1 << 30],
            picks in prop::collection::vec(any::<prop::sample::Index>(), 1..200),
        ) {
            let slots = 1u64 << log_slots;
            let mut order = Order::new(slots);
            order.next = first;
            // Sent and not yet arrived; what has been read.
            let (mut flying, mut sent, mut read): (Vec<u64>, u64, u64) = (Vec::new(), first, first);
            for pick in picks {
                while sent < read + slots {
                    flying.push(sent);
                    sent += 1;
                }
                let number = flying.swap_remove(pick.index(flying.len()));
                order.arrive((number & ((1 << 30) - 1)) as u32, number as u32 % 1000).unwrap();
                prop_assert!(order.arrive((number & ((1 << 30) - 1)) as u32, 0).is_err(), "twice");
                while let Some((slot, bytes)) = order.front() {
                    prop_assert_eq!((slot, bytes), (order.slot(read), read as u32 % 1000));
                    order.give_back();
                    read += 1;
                }
            }
            prop_assert!(flying.iter().all(|number| read <= *number));
        }
    }

    #[test]
    fn what_no_sound_sender_does_is_an_error() {
        let mut order = Order::new(4);
        assert_eq!(order.arrive(4, 0), Err(OrderError::Beyond { number: 4, next: 0, slots: 4 }));
        order.arrive(1, 7).unwrap();
        assert_eq!(order.arrive(1, 7), Err(OrderError::Twice(1)));
        assert_eq!(order.front(), None, "frame 0 is missing");
        order.end_at(2).unwrap();
        assert!(order.end_at(3).is_err() && order.end_at(2).is_ok() && !order.is_ended());
        order.arrive(0, 0).unwrap();
        order.give_back();
        order.give_back();
        assert!(order.is_ended());
    }
}
