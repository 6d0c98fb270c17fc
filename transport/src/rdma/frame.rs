//! A frame in its slot: a header right in front of the payload, so that one write brings both.
//!
//! ```text
//! slot  0        24        32                48       56      60      64
//!       | unused | channel | stamp (2 x u64) | credit | bytes | kind  | payload: `bytes` bytes
//!                ^ the write begins here
//! ```
//!
//! The payload begins at a cache line. An offer's payload says where the bytes lie: `README.md`, "fetching".

#![forbid(unsafe_code)]

use super::offer::SOURCE_BYTES;
use crate::link::{Channel, Stamp};

/// Bytes of a slot in front of the payload.
pub(super) const FRONT_BYTES: usize = 64;
/// Bytes of a header, at the end of these.
pub(super) const HEADER_BYTES: usize = 40;

/// What a header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) channel: Channel,
    pub(super) stamp: Stamp,
    /// All frames the other way below this number have been given back.
    pub(super) credit: u64,
    /// Bytes of the frame.
    pub(super) bytes: u32,
    pub(super) kind: FrameKind,
}

/// Where a frame's bytes lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameKind {
    /// In the slot.
    Here,
    /// With the sender still, who lets the receiver fetch them.
    Offer,
}

impl Header {
    #[inline]
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&self.channel.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.stamp.0[0].to_le_bytes());
        bytes[16..24].copy_from_slice(&self.stamp.0[1].to_le_bytes());
        bytes[24..32].copy_from_slice(&self.credit.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.bytes.to_le_bytes());
        let kind: u32 = match self.kind {
            FrameKind::Here => 0,
            FrameKind::Offer => 1,
        };
        bytes[36..40].copy_from_slice(&kind.to_le_bytes());
        bytes
    }

    /// The header of a write of `written` bytes; `None` if these can't be a frame.
    #[inline]
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES], written: u32) -> Option<Header> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let last = word(32);
        let (length, kind) = (last as u32, (last >> 32) as u32);
        let payload = written.checked_sub(HEADER_BYTES as u32)?;
        let kind = match kind {
            0 if length == payload => FrameKind::Here,
            1 if payload as usize == SOURCE_BYTES => FrameKind::Offer,
            _ => return None,
        };
        let stamp = Stamp([word(8), word(16)]);
        Some(Header { channel: Channel(word(0)), stamp, credit: word(24), bytes: length, kind })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(channel: u64, stamp: [u64; 2], credit: u64, bytes in 0u32..1 << 20, kind in 0usize..2) {
            let kind = [FrameKind::Here, FrameKind::Offer][kind];
            let header = Header { channel: Channel(channel), stamp: Stamp(stamp), credit, bytes, kind };
            let payload = if kind == FrameKind::Offer { SOURCE_BYTES as u32 } else { bytes };
            prop_assert_eq!(Header::decode(&header.encode(), HEADER_BYTES as u32 + payload), Some(header));
        }

        #[test]
        fn strange_bytes_are_refused(bytes: [u8; HEADER_BYTES], written: u32) {
            if let Some(header) = Header::decode(&bytes, written) {
                let payload = if header.kind == FrameKind::Offer { SOURCE_BYTES as u32 } else { header.bytes };
                prop_assert_eq!(payload + HEADER_BYTES as u32, written);
            }
        }
    }
}
