//! A link's memory: the slots that the peer writes, as many in which this end puts together what it sends, and a landing place
//! for what this end fetches and reads there.
//!
//! Slot *s* of the peer is written from staging slot *s* only, so that a credit for the one frees the other as well. The landing
//! place is a ring of pieces.

use super::frame::{FRONT_BYTES, HEADER_BYTES, Header};
use crate::memory::Region;

/// How a link's memory is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Geometry {
    /// Frames under way at most, each way; a power of two.
    pub(super) slots: u32,
    /// Bytes of payload that a slot holds.
    pub(super) payload_bytes: u32,
}

const SLOTS: u32 = 16;
/// What a rank's slots may take each way, as far as it has few peers: all of it is pinned.
const RANK_BYTES: usize = 32 << 20;
const FRAME_BYTES: std::ops::RangeInclusive<usize> = 4 << 10..=128 << 10;

impl Geometry {
    /// The cut for a rank with that many peers.
    pub(super) fn for_peers(peers: usize) -> Geometry {
        let fair = (RANK_BYTES / peers.max(1) / SLOTS as usize).max(1);
        // With its header a frame fills whole packets.
        let frame = (1usize << fair.ilog2()).clamp(*FRAME_BYTES.start(), *FRAME_BYTES.end());
        Geometry { slots: SLOTS, payload_bytes: (frame - FRONT_BYTES) as u32 }
    }

    /// What both of two ranks have.
    pub(super) fn common(self, other: Geometry) -> Geometry {
        Geometry { slots: self.slots.min(other.slots), payload_bytes: self.payload_bytes.min(other.payload_bytes) }
    }

    /// Whether a peer's claim is one that this code could have made.
    pub(super) fn is_sound(self) -> bool {
        self.slots.is_power_of_two() && self.slots <= 1 << 12 && (64..=1 << 24).contains(&self.payload_bytes)
    }

    fn stride(self) -> usize {
        FRONT_BYTES + self.payload_bytes as usize
    }

    fn side_bytes(self) -> usize {
        (self.slots as usize * self.stride()).next_multiple_of(4096)
    }

    /// Pieces of the landing place are as long as two slots.
    fn piece_bytes(self) -> usize {
        2 * self.stride().next_multiple_of(64)
    }

    /// Where a frame's header begins in a slot, from the beginning of the slots.
    pub(super) fn header_offset(self, slot: usize) -> usize {
        slot * self.stride() + FRONT_BYTES - HEADER_BYTES
    }
}

/// Pieces of the landing place.
const PIECES: usize = 4;

/// The memory.
pub(super) struct Slab {
    region: Region,
    geometry: Geometry,
    /// Where the staging slots begin, and the landing place.
    staging: usize,
    landing: usize,
    piece_bytes: usize,
}

impl Slab {
    pub(super) fn new(geometry: Geometry) -> std::io::Result<Slab> {
        let (staging, piece_bytes) = (geometry.side_bytes(), geometry.piece_bytes());
        let landing = 2 * staging;
        let region = Region::create(landing + PIECES * piece_bytes)?;
        Ok(Slab { region, geometry, staging, landing, piece_bytes })
    }

    /// From now on it is cut so; no larger than it was made.
    pub(super) fn recut(&mut self, geometry: Geometry) {
        assert!(geometry.side_bytes() <= self.staging, "{geometry:?} in {:?}", self.geometry);
        self.geometry = geometry;
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(super) fn start(&self) -> *mut u8 {
        self.region.start()
    }

    pub(super) fn bytes(&self) -> usize {
        self.region.bytes()
    }

    /// The header that the peer has written to a slot. Only after the completion that says so.
    #[inline]
    pub(super) fn header(&self, slot: usize) -> [u8; HEADER_BYTES] {
        assert!(slot < self.geometry.slots as usize);
        // SAFETY: within the slots; the device has written it before the completion, and the peer doesn't write there again
        // before it has a credit.
        unsafe { self.region.start().add(self.geometry.header_offset(slot)).cast::<[u8; HEADER_BYTES]>().read() }
    }

    /// The payload in a slot, as [`Slab::header`].
    #[inline]
    pub(super) fn payload(&self, slot: usize, bytes: usize) -> &[u8] {
        assert!(slot < self.geometry.slots as usize && bytes <= self.geometry.payload_bytes as usize);
        // SAFETY: as above; a peer without a credit that writes all the same can spoil what it sends and no more.
        unsafe {
            let start = self.region.start().add(self.geometry.header_offset(slot) + HEADER_BYTES);
            std::slice::from_raw_parts(start, bytes)
        }
    }

    /// The most bytes of the landing place that one read fills.
    pub(super) fn landing_piece_bytes(&self) -> usize {
        self.piece_bytes
    }

    pub(super) fn landing_bytes(&self) -> usize {
        PIECES * self.piece_bytes
    }

    /// Where byte `at` of a message lands.
    pub(super) fn landing(&self, at: usize) -> *const u8 {
        // SAFETY: within the landing place.
        unsafe { self.region.start().add(self.landing + at % self.landing_bytes()) }
    }

    /// Bytes of a message that have landed, from byte `at` on, within a piece. Only after the completion that says so.
    pub(super) fn landed(&self, at: usize, bytes: usize) -> &[u8] {
        assert!(at % self.piece_bytes + bytes <= self.piece_bytes);
        // SAFETY: within the landing place; the device has written them before the completion, and nobody reads there again
        // before they are given back.
        unsafe { std::slice::from_raw_parts(self.landing(at), bytes) }
    }

    /// Puts a frame together in a staging slot; where its header begins.
    #[inline]
    pub(super) fn stage(&mut self, slot: usize, header: &Header, payload: &[u8]) -> *const u8 {
        assert!(slot < self.geometry.slots as usize && payload.len() <= self.geometry.payload_bytes as usize);
        // SAFETY: within the staging slots; this end has a credit for the slot, so what was sent from it has arrived.
        unsafe {
            let start = self.region.start().add(self.staging + self.geometry.header_offset(slot));
            start.cast::<[u8; HEADER_BYTES]>().write(header.encode());
            std::ptr::copy_nonoverlapping(payload.as_ptr(), start.add(HEADER_BYTES), payload.len());
            start
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Channel, Stamp};
    use crate::rdma::frame::FrameKind;

    #[test]
    fn ranks_with_many_peers_pin_little_for_each() {
        for (peers, most) in [(1, 6 << 20), (16, 85 << 20), (63, 85 << 20), (255, 85 << 20)] {
            let geometry = Geometry::for_peers(peers);
            assert!(geometry.is_sound());
            let total = (2 * geometry.side_bytes() + PIECES * geometry.piece_bytes()) * peers;
            assert!(total < most, "{peers} peers pin {total} bytes");
        }
        let (few, many) = (Geometry::for_peers(1), Geometry::for_peers(200));
        assert_eq!(few.common(many), many);
    }

    #[test]
    fn slots_are_apart_and_payloads_begin_at_lines() {
        let geometry = Geometry { slots: 4, payload_bytes: 128 };
        let mut slab = Slab::new(geometry).unwrap();
        let header =
            |bytes| Header { channel: Channel(7), stamp: Stamp([1, 2]), credit: 3, bytes, kind: FrameKind::Here };
        for slot in 0..4 {
            slab.stage(slot, &header(128), &[slot as u8; 128]);
            assert_eq!(slab.payload(slot, 1).as_ptr() as usize % 64, 0);
        }
        let starts: Vec<usize> = (0..4).map(|slot| slab.stage(slot, &header(0), &[]) as usize).collect();
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] == 192));
        assert!(starts[3] + HEADER_BYTES + 128 <= slab.start() as usize + slab.bytes());
    }
}
