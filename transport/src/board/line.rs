//! A board's memory: lines that carry their own sequence number, and room for longer messages.

use std::ops::Range;

use crate::link::Stamp;
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a message in a slot's first line, beside the heading.
pub(super) const FIRST_BYTES: usize = 32;
/// Bytes of a message in each further line.
pub(super) const LINE_BYTES: usize = 56;
const HEADING_BYTES: usize = LINE_BYTES - FIRST_BYTES;

/// What goes before a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heading {
    /// What the turn is, as its writer believes.
    pub stamp: Stamp,
    /// A digest of all that the writer did before.
    pub history: u64,
}

/// The longest message in a slot's lines.
#[inline(always)]
pub(super) const fn short_bytes(lines: usize) -> usize {
    FIRST_BYTES + (lines - 1) * LINE_BYTES
}

/// One line, written by the board's owner alone.
#[repr(C, align(64))]
pub(crate) struct BoardLine {
    /// The turn's number plus one, stored last.
    sequence: AtomicU64,
    bytes: UnsafeCell<[u8; LINE_BYTES]>,
}

/// How many turns its owner has finished, written by the owner alone.
#[repr(C, align(128))]
pub(crate) struct FinishedLine {
    finished: AtomicU64,
}

/// Where a board lies. The pointers stay valid as long as whoever made the value keeps the memory mapped.
#[derive(Clone, Copy)]
pub(crate) struct BoardMemory {
    pub(crate) finished: *const FinishedLine,
    /// `slots` times `lines` lines.
    pub(crate) start: *const BoardLine,
    /// How many turns are kept; a power of two.
    pub(crate) slots: u64,
    /// Lines of a slot.
    pub(crate) lines: usize,
    /// `hall_bytes` for messages that are too long for a slot's lines.
    pub(crate) hall: *mut u8,
    pub(crate) hall_bytes: usize,
    /// Whether ranks share cores.
    pub(crate) crowded: bool,
}

/// Bytes of a long message that become readable together.
pub(super) const PIECE_BYTES: usize = 16 << 10;

#[cfg(all(test, loom))]
impl FinishedLine {
    pub(super) fn new() -> FinishedLine {
        FinishedLine { finished: AtomicU64::new(0) }
    }
}

impl BoardLine {
    #[cfg(all(test, loom))]
    pub(super) fn new() -> BoardLine {
        BoardLine { sequence: AtomicU64::new(0), bytes: UnsafeCell::new([0; LINE_BYTES]) }
    }

    /// Whether the line holds bytes of a turn or of a later one (README, "publish before read").
    #[inline(always)]
    fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Acquire)
    }

    /// Writes `bytes` behind the first `skip` of the line.
    ///
    /// # Safety
    ///
    /// Nobody reads the line as it is (README, "read before reuse"), and only one thread writes the board.
    #[inline(always)]
    unsafe fn fill(&self, skip: usize, bytes: &[u8]) {
        debug_assert!(skip + bytes.len() <= LINE_BYTES);
        // SAFETY: within the line, and nobody else touches it (the caller).
        self.bytes.with_mut(|line| unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), line.cast::<u8>().add(skip), bytes.len());
        });
    }

    /// Stores the number that makes the line readable.
    #[inline(always)]
    fn show(&self, sequence: u64) {
        self.sequence.store(sequence, Ordering::Release);
    }

    /// Copies bytes from behind the first `skip`.
    ///
    /// # Safety
    ///
    /// `sequence` has shown the line to be filled, and this rank has not finished the turn.
    #[inline(always)]
    unsafe fn copy(&self, skip: usize, target: &mut [u8]) {
        debug_assert!(skip + target.len() <= LINE_BYTES);
        // SAFETY: within the line, and its writer doesn't touch it until the turn is finished (the caller).
        self.bytes.with(|line| unsafe {
            std::ptr::copy_nonoverlapping(line.cast::<u8>().add(skip), target.as_mut_ptr(), target.len());
        });
    }
}

impl BoardMemory {
    /// Whether a message lies in the slot's lines; otherwise it lies in a hall, and the lines say how far it is there.
    #[inline(always)]
    pub(super) fn is_short(&self, bytes: usize) -> bool {
        bytes <= short_bytes(self.lines)
    }

    #[inline(always)]
    fn line(&self, turn: u64, number: usize) -> &BoardLine {
        assert!(number < self.lines);
        let place = (turn & (self.slots - 1)) as usize * self.lines + number;
        // SAFETY: below `slots * lines`, and mapped (the struct's text).
        unsafe { &*self.start.add(place) }
    }

    /// How many turns the board's owner has finished.
    #[inline(always)]
    pub(super) fn finished(&self) -> u64 {
        // SAFETY: mapped (the struct's text).
        unsafe { (*self.finished).finished.load(Ordering::Acquire) }
    }

    /// Says that of the board's owner.
    #[inline(always)]
    pub(super) fn finish(&self, turns: u64) {
        // SAFETY: as above. README, "read before reuse".
        unsafe { (*self.finished).finished.store(turns, Ordering::Release) }
    }

    /// Publishes a turn; a long message at that place of the hall.
    ///
    /// # Safety
    ///
    /// Only one thread writes the board, and nobody reads the slot or the place any more (README, "read before reuse").
    #[inline]
    pub(super) unsafe fn publish(&self, turn: u64, heading: Heading, message: &[u8], place: usize) {
        let is_short = self.is_short(message.len());
        let (first, rest) = message.split_at(if is_short { message.len().min(FIRST_BYTES) } else { 0 });
        let line = self.line(turn, 0);
        let [high, low] = heading.stamp.0;
        // SAFETY: the caller's promise, here and below.
        unsafe {
            line.fill(0, &high.to_le_bytes());
            line.fill(8, &low.to_le_bytes());
            line.fill(16, &heading.history.to_le_bytes());
            line.fill(HEADING_BYTES, first);
        }
        line.show(turn + 1);
        if !is_short {
            // SAFETY: as above.
            return unsafe { self.publish_long(turn, message, place) };
        }
        let mut number = 1;
        let mut whole = rest.chunks_exact(LINE_BYTES);
        for part in &mut whole {
            let line = self.line(turn, number);
            // SAFETY: as above. The length is a constant, so that the copy is a few moves.
            unsafe { line.fill(0, &part[..LINE_BYTES]) };
            line.show(turn + 1);
            number += 1;
        }
        if !whole.remainder().is_empty() {
            let line = self.line(turn, number);
            // SAFETY: as above.
            unsafe { line.fill(0, whole.remainder()) };
            line.show(turn + 1);
        }
    }

    /// Puts a long message into the hall, piece by piece. The first piece's line says where.
    ///
    /// # Safety
    ///
    /// As for [`BoardMemory::publish`].
    unsafe fn publish_long(&self, turn: u64, message: &[u8], place: usize) {
        assert!(place + message.len() <= self.hall_bytes, "{} bytes at {place} of a hall", message.len());
        // SAFETY: nobody reads the line as it is (the caller).
        unsafe { self.line(turn, 1).fill(0, &(place as u64).to_le_bytes()) };
        for (number, piece) in message.chunks(PIECE_BYTES).enumerate() {
            // SAFETY: within the hall, and nobody reads what lies there (the caller).
            unsafe {
                let target = self.hall.add(place + number * PIECE_BYTES);
                std::ptr::copy_nonoverlapping(piece.as_ptr(), target, piece.len());
            }
            self.line(turn, 1 + number).show(turn + 1);
        }
    }

    /// How many bytes of a long message's `range` are there, if the first `known` are.
    #[inline]
    pub(super) fn arrived(&self, turn: u64, range: &Range<usize>, known: usize) -> usize {
        let mut there = range.start + known;
        while there < range.end {
            let number = there / PIECE_BYTES;
            if self.line(turn, 1 + number).sequence() != turn + 1 {
                break;
            }
            there = ((number + 1) * PIECE_BYTES).min(range.end);
        }
        there - range.start
    }

    /// Bytes of a long message.
    ///
    /// # Safety
    ///
    /// They have [arrived](BoardMemory::arrived), and the turn is not finished while the slice lives.
    #[inline]
    pub(super) unsafe fn part(&self, turn: u64, range: Range<usize>) -> &[u8] {
        let mut place = [0; 8];
        if self.line(turn, 1).sequence() == turn + 1 {
            // SAFETY: the sequence has just been looked at, and the turn isn't finished (the caller).
            unsafe { self.line(turn, 1).copy(0, &mut place) };
        }
        let place = u64::from_le_bytes(place) as usize;
        assert!(place <= self.hall_bytes && range.end <= self.hall_bytes - place, "a message beyond its hall");
        // SAFETY: within the hall, and its writer doesn't touch it until the turn is finished (the caller).
        unsafe { std::slice::from_raw_parts(self.hall.add(place + range.start), range.len()) }
    }

    /// The heading of a turn, if it has been published. It may be torn unless this rank has not finished the turn.
    #[inline]
    pub(super) fn heading(&self, turn: u64) -> Option<Heading> {
        let line = self.line(turn, 0);
        if line.sequence() != turn + 1 {
            return None;
        }
        let (mut high, mut low, mut history) = ([0; 8], [0; 8], [0; 8]);
        // SAFETY: the sequence has just been looked at, and the turn isn't finished, or the caller bears with torn bytes.
        unsafe {
            line.copy(0, &mut high);
            line.copy(8, &mut low);
            line.copy(16, &mut history);
        }
        let [high, low, history] = [high, low, history].map(u64::from_le_bytes);
        Some(Heading { stamp: Stamp([high, low]), history })
    }

    /// Copies bytes of a turn's message from `from` on, as far as they are there; how many.
    #[inline]
    pub(super) fn read(&self, turn: u64, from: usize, target: &mut [u8]) -> usize {
        let mut done = 0;
        while done < target.len() {
            let at = from + done;
            let (number, skip, end) = match at.checked_sub(FIRST_BYTES) {
                None => (0, HEADING_BYTES + at, LINE_BYTES),
                Some(behind) => (1 + behind / LINE_BYTES, behind % LINE_BYTES, LINE_BYTES),
            };
            if skip == 0 && number > 0 {
                let whole = self.read_lines(turn, number, &mut target[done..]);
                done += whole;
                if whole > 0 {
                    continue;
                }
            }
            let line = self.line(turn, number);
            if line.sequence() != turn + 1 {
                break;
            }
            let bytes = (end - skip).min(target.len() - done);
            // SAFETY: the sequence has just been looked at, and the turn isn't finished (the caller's board).
            unsafe { line.copy(skip, &mut target[done..done + bytes]) };
            done += bytes;
        }
        done
    }

    /// Copies whole lines from line `number` on, as far as they are there; how many bytes.
    #[inline]
    fn read_lines(&self, turn: u64, number: usize, target: &mut [u8]) -> usize {
        let mut done = 0;
        for (place, part) in target.chunks_exact_mut(LINE_BYTES).enumerate() {
            let line = self.line(turn, number + place);
            if line.sequence() != turn + 1 {
                break;
            }
            // SAFETY: as in `read`. The length is a constant, so that the copy is a few moves.
            unsafe { line.copy(0, &mut part[..LINE_BYTES]) };
            done += LINE_BYTES;
        }
        done
    }
}
