//! The frame on the wire: a header of forty bytes in front of every payload, little-endian.
//!
//! ```text
//! byte  0        4        8         16        24               40
//!       | magic  | bytes  | sequence | channel | stamp (2 x u64) | payload: `bytes` bytes
//! ```
//!
//! The last byte of the magic is the format's version. [`parse`] is a pure function of bytes that anybody may have
//! sent: it never panics, and nothing it returns makes a reader allocate.

#![forbid(unsafe_code)]

use crate::link::{Channel, LinkError, Stamp};

/// Bytes of a frame in front of its payload.
pub const HEADER_BYTES: usize = 40;

/// The longest payload that a frame may carry.
pub const PAYLOAD_BYTES_MAX: u32 = 1 << 20;

const MAGIC: [u8; 4] = *b"pcl\x01";

/// What a header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The channel that the frame belongs to.
    pub channel: Channel,
    /// The stamp it was sent with.
    pub stamp: Stamp,
    /// Its place among all frames that this end of the link sent, from zero, whatever stream carries it.
    pub sequence: u64,
    /// Bytes of payload, at most [`PAYLOAD_BYTES_MAX`].
    pub bytes: u32,
}

/// Why bytes aren't a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// The first bytes aren't the mark of a frame; holds them, the missing ones being zero.
    #[error("no frame begins with the bytes {0:02x?} (this build speaks {MAGIC:02x?})")]
    Magic([u8; 4]),
    /// The header announces more payload than any frame has.
    #[error("a frame of {0} bytes is longer than the longest, {PAYLOAD_BYTES_MAX}")]
    Long(u32),
}

impl From<FrameError> for LinkError {
    fn from(error: FrameError) -> LinkError {
        LinkError::Protocol(error.to_string())
    }
}

impl Frame {
    /// The header that announces this frame.
    ///
    /// # Panics
    ///
    /// If the payload is longer than [`PAYLOAD_BYTES_MAX`].
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        assert!(self.bytes <= PAYLOAD_BYTES_MAX, "a frame of {} bytes can't be sent", self.bytes);
        let mut header = [0; HEADER_BYTES];
        header[0..4].copy_from_slice(&MAGIC);
        header[4..8].copy_from_slice(&self.bytes.to_le_bytes());
        header[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        header[16..24].copy_from_slice(&self.channel.0.to_le_bytes());
        header[24..32].copy_from_slice(&self.stamp.0[0].to_le_bytes());
        header[32..40].copy_from_slice(&self.stamp.0[1].to_le_bytes());
        header
    }
}

/// The frame whose header `input` begins with and the bytes that the header took; `None` if more must arrive first.
///
/// # Errors
///
/// [`FrameError`] as soon as the bytes that are here can't become a frame.
pub fn parse(input: &[u8]) -> Result<Option<(Frame, usize)>, FrameError> {
    let marked = input.len().min(MAGIC.len());
    if input[..marked] != MAGIC[..marked] {
        let mut seen = [0; MAGIC.len()];
        seen[..marked].copy_from_slice(&input[..marked]);
        return Err(FrameError::Magic(seen));
    }
    let Some(header) = input.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let word = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&header[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    let bytes = (word(0) >> 32) as u32;
    if bytes > PAYLOAD_BYTES_MAX {
        return Err(FrameError::Long(bytes));
    }
    let frame = Frame { channel: Channel(word(16)), stamp: Stamp([word(24), word(32)]), sequence: word(8), bytes };
    Ok(Some((frame, HEADER_BYTES)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_parsed(
            channel: u64, stamp: [u64; 2], sequence: u64, bytes in 0..=PAYLOAD_BYTES_MAX, cut in 0..HEADER_BYTES,
            rest: Vec<u8>,
        ) {
            let frame = Frame { channel: Channel(channel), stamp: Stamp(stamp), sequence, bytes };
            let mut wire = frame.encode().to_vec();
            prop_assert_eq!(parse(&wire[..cut]), Ok(None));
            wire.extend(rest);
            prop_assert_eq!(parse(&wire), Ok(Some((frame, HEADER_BYTES))));
        }

        #[test]
        fn strange_bytes_are_refused_or_wait(input: Vec<u8>, marked: bool) {
            let mut input = input;
            if marked {
                input.splice(..input.len().min(4), MAGIC);
            }
            match parse(&input) {
                Ok(None) => prop_assert!(input.len() < HEADER_BYTES),
                Ok(Some((frame, used))) => prop_assert!(used == HEADER_BYTES && frame.bytes <= PAYLOAD_BYTES_MAX),
                Err(FrameError::Magic(_)) => prop_assert!(!marked),
                Err(FrameError::Long(bytes)) => prop_assert!(bytes > PAYLOAD_BYTES_MAX),
            }
        }
    }

    #[test]
    fn a_stranger_is_refused_at_the_first_byte() {
        assert_eq!(parse(b"G"), Err(FrameError::Magic([b'G', 0, 0, 0])));
        assert_eq!(parse(b"pcl\x02"), Err(FrameError::Magic(*b"pcl\x02")));
        assert_eq!(parse(b"pcl"), Ok(None));
        assert_eq!(parse(b""), Ok(None));
    }
}
