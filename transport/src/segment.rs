//! A rank's segment: the memory it writes and its neighbours on the host read.
//!
//! A segment holds a header, one credit line and one ring for each neighbour, and a board for all. Neighbours map it
//! read-only, but for what concerns nobody but the owner and one of them: the ring to it, and, where there are two, the cells
//! that follow.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::board::{self, BoardLine, BoardMemory, FinishedLine, PAIR_BYTES, PairMemory};
use crate::memory::{Region, Stretch};
use crate::ring::{CELLS, CreditLine, RingMemory, SlotLine};
use crate::sync::atomic::{AtomicU32, Ordering};

/// How a segment is cut: the same numbers at its owner and at every neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Geometry {
    /// How many ranks share the host, the owner included.
    pub(crate) neighbours: u32,
    /// Frames that a ring holds at most; a power of two.
    pub(crate) slots: u32,
    /// Bytes that a ring's payloads share; a power of two.
    pub(crate) payload_bytes: u32,
    /// Whether ranks share cores.
    pub(crate) crowded: bool,
}

/// Bytes that the rings of one host together may take, as far as there are few ranks.
const HOST_BYTES: usize = 64 << 20;
const HEADER_BYTES: usize = 4096;
const SLOTS: u32 = 32;
/// The most is more than a core's own cache holds: what is written next is then in no reader's cache any more, from which
/// it would be slow to get back.
const PAYLOAD_BYTES: std::ops::RangeInclusive<usize> = 32 << 10..=2 << 20;
/// The longest frame, as a share of the payload, and at most.
const FRAMES: usize = 8;
const FRAME_BYTES: usize = 128 << 10;

impl Geometry {
    /// The cut for that many ranks on one host. Pages are taken when they are first used.
    pub(crate) fn for_neighbours(neighbours: usize, crowded: bool) -> Geometry {
        let pairs = (neighbours * neighbours.saturating_sub(1)).max(1);
        let fair = 1usize << (HOST_BYTES / pairs).max(1).ilog2();
        let payload_bytes = fair.clamp(*PAYLOAD_BYTES.start(), *PAYLOAD_BYTES.end()) as u32;
        Geometry { neighbours: neighbours as u32, slots: SLOTS, payload_bytes, crowded }
    }

    fn frame_bytes(&self) -> usize {
        (self.payload_bytes as usize / FRAMES).min(FRAME_BYTES)
    }

    fn ring_bytes(&self) -> usize {
        let lines = self.slots as usize * size_of::<SlotLine>();
        (lines + self.payload_bytes as usize + CELLS * self.frame_bytes()).next_multiple_of(4096)
    }

    fn ring_offset(&self, place: usize) -> usize {
        HEADER_BYTES + self.credits_bytes() + place * self.ring_bytes()
    }

    fn credits_bytes(&self) -> usize {
        (self.neighbours as usize * size_of::<CreditLine>()).next_multiple_of(4096)
    }

    fn total_bytes(&self) -> usize {
        self.pair_offset() + if self.neighbours == 2 { PAIR_BYTES } else { 0 }
    }

    fn pair_offset(&self) -> usize {
        self.hall_offset() + board::hall_bytes(self.neighbours as usize)
    }

    fn hall_offset(&self) -> usize {
        let lines = board::slots(self.neighbours as usize) * board::LINES * size_of::<BoardLine>();
        (self.board_offset() + size_of::<FinishedLine>() + lines).next_multiple_of(4096)
    }

    fn board_offset(&self) -> usize {
        self.ring_offset(self.neighbours as usize)
    }

    /// Whether a neighbour's claim is one that this code could have made.
    pub(crate) fn is_sound(&self) -> bool {
        self.slots.is_power_of_two()
            && self.slots <= 1 << 10
            && (512..=1 << 30).contains(&self.payload_bytes)
            && self.payload_bytes.is_power_of_two()
            && (1..=1 << 12).contains(&self.neighbours)
    }
}

/// The start of a segment.
#[repr(C, align(64))]
struct Header {
    nonce: [u8; 16],
    _pad: [u8; 48],
    sleeping: SleepLine,
}

/// Whether the owner sleeps; a line of its own, since neighbours look at it often.
#[repr(C, align(64))]
struct SleepLine {
    sleeping: AtomicU32,
}

/// A mapped segment, the owner's own or a neighbour's.
pub(crate) struct Segment {
    region: Region,
    geometry: Geometry,
    /// A neighbour's cells, mapped for writing.
    cells: Option<Stretch>,
}

impl Segment {
    /// A new, zeroed segment with `nonce` in its header.
    pub(crate) fn create(geometry: Geometry, nonce: [u8; 16]) -> std::io::Result<Segment> {
        let region = Region::create(geometry.total_bytes())?;
        // SAFETY: the segment is at least a header long, freshly made, and not yet shared.
        unsafe { region.start().cast::<[u8; 16]>().write(nonce) };
        Ok(Segment { region, geometry, cells: None })
    }

    /// A neighbour's segment, mapped read-only but for the cells.
    ///
    /// An error if the file is shorter than `geometry` says, could still be cut short, or doesn't hold `nonce`: then
    /// this is not the memory that the neighbour meant.
    pub(crate) fn attach(file: OwnedFd, geometry: Geometry, nonce: [u8; 16]) -> std::io::Result<Segment> {
        let unsound = |what: String| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
        if !geometry.is_sound() {
            return Err(unsound(format!("a segment can't have the shape {geometry:?}")));
        }
        let region = Region::attach(file, geometry.total_bytes())?;
        // SAFETY: the mapping is at least a header long, and the owner doesn't write the nonce again.
        if unsafe { region.start().cast::<[u8; 16]>().read() } != nonce {
            return Err(unsound("the shared memory doesn't hold the neighbour's nonce".into()));
        }
        let has_cells = geometry.neighbours == 2;
        let cells = has_cells.then(|| region.stretch(geometry.pair_offset(), PAIR_BYTES)).transpose()?;
        Ok(Segment { region, geometry, cells })
    }

    /// The segment's file, to hand to a neighbour.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.region.file()
    }

    /// How much memory the segment has taken so far; all of it, if the kernel doesn't say.
    pub(crate) fn bytes_taken(&self) -> u64 {
        const BLOCK_BYTES: u64 = 512;
        rustix::fs::fstat(self.file()).map_or(u64::MAX, |stat| stat.st_blocks as u64 * BLOCK_BYTES)
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn sleep_line(&self) -> &AtomicU32 {
        // SAFETY: the header lies at the start of every segment.
        unsafe { &(*self.region.start().cast::<Header>()).sleeping.sleeping }
    }

    /// Says whether this segment's owner is about to sleep. For the owner only.
    pub(crate) fn set_sleeping(&self, sleeping: bool) {
        self.sleep_line().store(u32::from(sleeping), Ordering::Relaxed);
    }

    /// Whether the owner sleeps or is about to. Meaningful after a full fence (`ring/README.md`, "sleep and wake").
    pub(crate) fn is_sleeping(&self) -> bool {
        self.sleep_line().load(Ordering::Relaxed) != 0
    }

    /// The ring from this segment's owner to the neighbour at `place`, whose own segment is `neighbour`, in which the
    /// owner has place `owner_place`.
    pub(crate) fn ring_to(&self, place: usize, neighbour: &Segment, owner_place: usize) -> RingMemory {
        assert!(place < self.geometry.neighbours as usize);
        // SAFETY: `place` is within the segment, whose length follows from its geometry.
        self.ring_at(unsafe { self.region.start().add(self.geometry.ring_offset(place)) }, neighbour, owner_place)
    }

    /// The same ring as that neighbour, its receiver, sees it: it may write there, too, in a mapping of its own where the
    /// segment's can only be read.
    pub(crate) fn ring_from(
        &self,
        place: usize,
        neighbour: &Segment,
        owner_place: usize,
    ) -> std::io::Result<(RingMemory, Option<Stretch>)> {
        if self.region.is_writable() {
            return Ok((self.ring_to(place, neighbour, owner_place), None));
        }
        assert!(place < self.geometry.neighbours as usize);
        let stretch = self.region.stretch(self.geometry.ring_offset(place), self.geometry.ring_bytes())?;
        Ok((self.ring_at(stretch.start(), neighbour, owner_place), Some(stretch)))
    }

    fn ring_at(&self, ring: *mut u8, neighbour: &Segment, owner_place: usize) -> RingMemory {
        assert!(owner_place < neighbour.geometry.neighbours as usize);
        let g = &self.geometry;
        // SAFETY: a ring is `ring_bytes` long, and `owner_place` is within the neighbour's segment.
        unsafe {
            let credit = neighbour.region.start().add(HEADER_BYTES + owner_place * size_of::<CreditLine>());
            let payload = ring.add(g.slots as usize * size_of::<SlotLine>());
            RingMemory {
                lines: ring.cast(),
                payload,
                credit: credit.cast(),
                cells: payload.add(g.payload_bytes as usize),
                slots: u64::from(g.slots),
                payload_bytes: g.payload_bytes as usize,
                frame_bytes: g.frame_bytes(),
                cell_bytes: g.frame_bytes(),
                crowded: g.crowded,
            }
        }
    }

    /// The cells that two neighbours share.
    pub(crate) fn pair(&self) -> Option<PairMemory> {
        if self.geometry.neighbours != 2 {
            return None;
        }
        let start = match &self.cells {
            Some(cells) => cells.start(),
            // SAFETY: the cells lie at the end of the segment (`total_bytes`).
            None => unsafe { self.region.start().add(self.geometry.pair_offset()) },
        };
        // SAFETY: they are mapped for writing, by the owner with all of the segment, zero at first, and page-aligned.
        Some(unsafe { PairMemory::new(start) })
    }

    /// The owner's board.
    pub(crate) fn board(&self) -> BoardMemory {
        let g = &self.geometry;
        // SAFETY: the board's lines and the hall lie behind the rings, within the segment (`total_bytes`).
        let (finished, start, hall) = unsafe {
            let (board, hall) = (g.board_offset(), g.hall_offset());
            let at = |offset| self.region.start().add(offset);
            (at(board), at(board + size_of::<FinishedLine>()), at(hall))
        };
        BoardMemory {
            finished: finished.cast(),
            start: start.cast(),
            slots: board::slots(g.neighbours as usize) as u64,
            lines: board::LINES,
            hall,
            hall_bytes: board::hall_bytes(g.neighbours as usize),
            crowded: g.crowded,
        }
    }
}

/// A segment that rings point into.
pub(crate) type SharedSegment = Arc<Segment>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_full_of_ranks_takes_little() {
        for (neighbours, most) in [(2, 32 << 20), (8, 144 << 20), (40, 192 << 20), (256, 4 << 30)] {
            let total = Geometry::for_neighbours(neighbours, true).total_bytes() * neighbours;
            assert!(total < most, "{neighbours} ranks take {total} bytes");
        }
    }

    #[test]
    fn a_segment_is_known_by_its_nonce_and_length() {
        let geometry = Geometry::for_neighbours(2, false);
        let segment = Segment::create(geometry, [7; 16]).unwrap();
        let file = || segment.file().try_clone_to_owned().unwrap();
        assert!(Segment::attach(file(), geometry, [7; 16]).is_ok());
        assert!(Segment::attach(file(), geometry, [8; 16]).is_err(), "another nonce");
        assert!(Segment::attach(file(), Geometry { slots: 512, ..geometry }, [7; 16]).is_err(), "too short");
        assert!(Segment::attach(file(), Geometry { slots: 3, ..geometry }, [7; 16]).is_err(), "unsound");
    }
}
