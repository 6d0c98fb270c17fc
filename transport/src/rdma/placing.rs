//! Offers of large messages, the answers to them, and what is under way: `README.md`, "placing".

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use super::options::PORTS_MAX;
use super::registration::Found;
use crate::link::{Channel, Stamp};

/// Messages from this length on are offered, if they lie in registered memory.
pub(super) const OFFER_BYTES_MIN: usize = 128 << 10;
/// What is offered at once at most.
pub(super) const OFFER_BYTES_MAX: usize = 1 << 30;
/// The most bytes that one write places.
pub(super) const PLACED_BYTES_MAX: usize = 256 << 10;

/// A receiver's answer to an offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    /// The number of the frame with the offer.
    pub(super) offer: u64,
    /// How many bytes to put at `address`; 0 asks for all of them through the slots.
    pub(super) bytes: u64,
    pub(super) address: u64,
    /// The key to the memory there, by rail.
    pub(super) keys: [u32; PORTS_MAX],
}

/// Bytes of an answer on the wire.
pub(super) const ANSWER_BYTES: usize = 24 + 4 * PORTS_MAX;

impl Answer {
    pub(super) fn encode(&self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        let words = [self.offer, self.bytes, self.address];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        for (place, key) in bytes[24..].chunks_exact_mut(4).zip(self.keys) {
            place.copy_from_slice(&key.to_le_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Answer> {
        let bytes: &[u8; ANSWER_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|k| bytes[at + k]));
        let key = |rail: usize| u32::from_le_bytes(std::array::from_fn(|k| bytes[24 + 4 * rail + k]));
        Some(Answer { offer: word(0), bytes: word(8), address: word(16), keys: std::array::from_fn(key) })
    }
}

/// A message that is sent from where it lies, and not wholly accepted: `send` has said of the bytes in front of `accepted`
/// only that the link has no more use for them.
pub(super) struct Leaving {
    pub(super) channel: Channel,
    pub(super) stamp: Stamp,
    /// Keeps it mapped.
    pub(super) memory: Found,
    /// Where the message begins, and how long it is.
    pub(super) start: usize,
    pub(super) bytes: usize,
    pub(super) accepted: usize,
    /// Bytes in writes that were posted.
    pub(super) begun: usize,
    pub(super) way: Way,
    pub(super) writes: VecDeque<WriteUnderWay>,
}

/// Where a message goes that is sent from where it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// Nobody has been asked yet.
    Open,
    /// The receiver has been asked by the frame of this number.
    Offered(u64),
    /// Up to this byte to where the answer says; the answer's address is that of byte `from`.
    Placed { from: usize, until: usize, answer: Answer },
    /// Up to this byte through the slots.
    Slots { until: usize },
}

/// A write from a message's memory, which may not change before it has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WriteUnderWay {
    pub(super) rail: usize,
    pub(super) queue: usize,
    pub(super) request: u64,
    pub(super) bytes: usize,
}

/// Memory in which a peer places a message.
pub(super) struct Arriving {
    pub(super) channel: Channel,
    /// Keeps it mapped, also when the call that waits for it has failed.
    pub(super) memory: Found,
    pub(super) start: usize,
    pub(super) bytes: usize,
    /// Bytes given back to the owner of the link.
    pub(super) read: usize,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn answers_come_back(offer: u64, bytes: u64, address: u64, keys: [u32; PORTS_MAX]) {
            let answer = Answer { offer, bytes, address, keys };
            prop_assert_eq!(Answer::decode(&answer.encode()), Some(answer));
            prop_assert_eq!(Answer::decode(&answer.encode()[1..]), None);
        }
    }
}
