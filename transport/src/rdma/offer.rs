//! Messages of which devices read the bytes where they lie: which are under way, and what is told of those that the receiver
//! fetches: `README.md`, "in place" and "fetching".

#![forbid(unsafe_code)]

use super::options::PORTS_MAX;
use super::registration::Found;
use crate::link::{Channel, Stamp};

/// Messages from this length on are written from where they lie, if that is registered memory and a slot holds them: to wait
/// for the device costs less than to copy so much.
pub(super) const IN_PLACE_BYTES_MIN: usize = 64 << 10;
/// Messages from this length on are offered, if they lie in registered memory.
pub(super) const OFFER_BYTES_MIN: usize = 128 << 10;
/// What is offered at once at most.
pub(super) const OFFER_BYTES_MAX: usize = 1 << 30;

/// Where the bytes of an offer lie in the sender's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Source {
    pub(super) address: u64,
    /// The key to the memory there, by rail.
    pub(super) keys: [u32; PORTS_MAX],
}

/// Bytes of a source on the wire.
pub(super) const SOURCE_BYTES: usize = 8 + 4 * PORTS_MAX;

impl Source {
    pub(super) fn encode(&self) -> [u8; SOURCE_BYTES] {
        let mut bytes = [0; SOURCE_BYTES];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        for (place, key) in bytes[8..].chunks_exact_mut(4).zip(self.keys) {
            place.copy_from_slice(&key.to_le_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8; SOURCE_BYTES]) -> Source {
        let key = |rail: usize| u32::from_le_bytes(std::array::from_fn(|k| bytes[8 + 4 * rail + k]));
        let address = u64::from_le_bytes(std::array::from_fn(|k| bytes[k]));
        Source { address, keys: std::array::from_fn(key) }
    }
}

/// A message of which devices read the bytes where they lie, and not wholly accepted.
pub(super) struct Leaving {
    pub(super) channel: Channel,
    pub(super) stamp: Stamp,
    /// Keeps it registered.
    pub(super) memory: Found,
    /// Where the message begins, and how long it is.
    pub(super) start: usize,
    pub(super) bytes: usize,
    pub(super) accepted: usize,
    pub(super) begun: Option<Begun>,
}

/// What has been begun of such a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Begun {
    /// So many bytes are offered: when the frame of that number is given back, all of them have been fetched.
    Offered { frame: u64, bytes: usize },
    /// All of it is being written to a slot: when this request of a rail's queue has ended, the device has read it.
    Written { rail: usize, queue: usize, request: u64 },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sources_come_back(address: u64, keys: [u32; PORTS_MAX]) {
            let source = Source { address, keys };
            prop_assert_eq!(Source::decode(&source.encode()), source);
        }
    }
}
