//! Offers of large messages: what is told of where they lie, and which of them wait to be fetched: `README.md`, "fetching".

#![forbid(unsafe_code)]

use super::options::PORTS_MAX;
use super::registration::Found;
use crate::link::{Channel, Stamp};

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

/// A message that the receiver fetches from where it lies, and not wholly accepted.
pub(super) struct Leaving {
    pub(super) channel: Channel,
    pub(super) stamp: Stamp,
    /// Keeps it registered.
    pub(super) memory: Found,
    /// Where the message begins, and how long it is.
    pub(super) start: usize,
    pub(super) bytes: usize,
    pub(super) accepted: usize,
    pub(super) offered: Option<Offered>,
}

/// An offer that has been made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Offered {
    /// The number of its frame: when that is given back, all has been fetched.
    pub(super) frame: u64,
    pub(super) bytes: usize,
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
