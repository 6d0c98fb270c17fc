//! Two cells that two ranks hand to and fro: each writes its message into the cell that it has read the other's last one
//! from. `README.md` has the reasoning.

use std::ops::Range;

use super::line::{Heading, PIECE_BYTES};
use crate::link::Stamp;
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a message beside the heading, in the same cache line.
pub(super) const INLINE_BYTES: usize = 24;
const HEADING_BYTES: usize = 24;
/// The longest message.
pub(super) const LONGEST_BYTES: usize = super::MESSAGE_BYTES;

/// How far a cell's line and its payload are from the start of all cells. Lines are apart by more than a processor fetches
/// together.
const LINES_APART: usize = 256;
const PAYLOADS_FROM: usize = 4096;

/// Bytes that both cells take.
pub(crate) const PAIR_BYTES: usize = PAYLOADS_FROM + 2 * LONGEST_BYTES;

/// What a cell says of its message. Written by whoever has the cell.
#[repr(C, align(64))]
pub(crate) struct CellLine {
    /// The exchange's number plus one, and above it the turn's lowest bits; stored when the heading and all of a short
    /// message are there.
    sequence: AtomicU64,
    /// Bytes of a long message that are there, and [`WHOLE`] once that is all; of a short one that alone.
    there: AtomicU64,
    bytes: UnsafeCell<[u8; HEADING_BYTES + INLINE_BYTES]>,
}

impl CellLine {
    #[cfg(all(test, loom))]
    pub(super) fn new() -> CellLine {
        let bytes = UnsafeCell::new([0; HEADING_BYTES + INLINE_BYTES]);
        CellLine { sequence: AtomicU64::new(0), there: AtomicU64::new(0), bytes }
    }
}

/// Where the cells lie. The pointers stay valid as long as whoever made the value keeps the memory mapped.
#[derive(Clone, Copy)]
pub(crate) struct PairMemory {
    pub(super) lines: [*const CellLine; 2],
    pub(super) payloads: [*mut u8; 2],
    pub(super) payload_bytes: usize,
}

impl PairMemory {
    /// Cells in [`PAIR_BYTES`] from `start` on.
    ///
    /// # Safety
    ///
    /// The bytes are mapped for writing, zero when the first exchange begins, and page-aligned.
    pub(crate) unsafe fn new(start: *mut u8) -> PairMemory {
        // SAFETY: all within `PAIR_BYTES`.
        let (lines, payloads) = unsafe {
            (
                [0, 1].map(|cell| start.add(cell * LINES_APART).cast_const().cast()),
                [0, 1].map(|cell| start.add(PAYLOADS_FROM + cell * LONGEST_BYTES)),
            )
        };
        PairMemory { lines, payloads, payload_bytes: LONGEST_BYTES }
    }
}

/// In `there`: its writer doesn't touch the cell any more.
const WHOLE: u64 = 1 << 63;

/// Bits of a sequence that number the exchange.
const EXCHANGE_BITS: u32 = 48;
const EXCHANGES: u64 = (1 << EXCHANGE_BITS) - 1;

/// One of the two ranks.
pub(super) struct Pair {
    memory: PairMemory,
    /// 0 or 1.
    me: usize,
    /// How many exchanges have ended.
    exchange: u64,
    /// Bytes of this exchange's payloads that were written, and that were looked for.
    wrote: usize,
    looked: usize,
}

impl Pair {
    /// How many exchanges have ended.
    pub(super) fn exchange(&self) -> u64 {
        self.exchange
    }

    pub(super) fn new(memory: PairMemory, me: usize) -> Pair {
        assert!(me < 2);
        Pair { memory, me, exchange: 0, wrote: 0, looked: 0 }
    }

    /// The cell that this rank has in this exchange.
    #[inline(always)]
    fn mine(&self) -> usize {
        self.me ^ (self.exchange & 1) as usize
    }

    #[inline(always)]
    fn theirs(&self) -> usize {
        1 - self.mine()
    }

    #[inline(always)]
    fn line(&self, cell: usize) -> &CellLine {
        // SAFETY: mapped (the struct's text), and only looked at through atomics and as README says.
        unsafe { &*self.memory.lines[cell] }
    }

    /// Whether the other rank has published all of its message in the last exchange: not before may this rank publish in the
    /// present one. That it has read what it needs of it is not enough.
    #[inline]
    pub(super) fn has_the_last(&self) -> bool {
        let line = self.line(self.mine());
        self.exchange == 0
            || line.sequence.load(Ordering::Acquire) & EXCHANGES == self.exchange
                && line.there.load(Ordering::Acquire) & WHOLE != 0
    }

    /// Writes this exchange's message, once, when it [has the last](Pair::has_the_last).
    ///
    /// # Panics
    ///
    /// If the message is longer than a cell.
    #[inline]
    pub(super) fn publish(&mut self, turn: u64, heading: Heading, message: &[u8]) {
        let (cell, sequence) = (self.mine(), turn << EXCHANGE_BITS | (self.exchange + 1));
        self.wrote = message.len();
        let line = self.line(cell);
        let inline = message.len() <= INLINE_BYTES;
        let [high, low] = heading.stamp.0;
        // SAFETY: the cell is this rank's from the end of the last exchange to the store of `sequence` (README, "hand to
        // and fro"): within the line, and nobody else touches it.
        line.bytes.with_mut(|bytes| unsafe {
            let bytes = bytes.cast::<u8>();
            bytes.cast::<[u64; 3]>().write_unaligned([high, low, heading.history]);
            if inline {
                std::ptr::copy_nonoverlapping(message.as_ptr(), bytes.add(HEADING_BYTES), message.len());
            }
        });
        if inline {
            line.there.store(WHOLE, Ordering::Relaxed);
            return line.sequence.store(sequence, Ordering::Release);
        }
        assert!(message.len() <= self.memory.payload_bytes, "{} bytes in a cell", message.len());
        let mut pieces = message.chunks(PIECE_BYTES).enumerate();
        let put = |number: usize, piece: &[u8]| {
            // SAFETY: within the payload (asserted), of which nobody reads what `there` doesn't cover.
            unsafe {
                let target = self.memory.payloads[cell].add(number * PIECE_BYTES);
                std::ptr::copy_nonoverlapping(piece.as_ptr(), target, piece.len());
            }
            let there = number * PIECE_BYTES + piece.len();
            there as u64 | if there == message.len() { WHOLE } else { 0 }
        };
        let (number, first) = pieces.next().expect("longer than what is inline");
        line.there.store(put(number, first), Ordering::Relaxed);
        line.sequence.store(sequence, Ordering::Release);
        for (number, piece) in pieces {
            line.there.store(put(number, piece), Ordering::Release);
        }
    }

    /// What the other rank says that this exchange is, once it has published.
    #[inline]
    pub(super) fn heading(&self) -> Option<Heading> {
        let line = self.line(self.theirs());
        if !self.is_there() {
            return None;
        }
        // SAFETY: within the line, which its writer doesn't touch before this rank hands it back.
        let [high, low, history] = line.bytes.with(|bytes| unsafe { bytes.cast::<[u64; 3]>().read_unaligned() });
        Some(Heading { stamp: Stamp([high, low]), history })
    }

    /// Whether the other rank has published.
    #[inline(always)]
    fn is_there(&self) -> bool {
        self.line(self.theirs()).sequence.load(Ordering::Acquire) & EXCHANGES == self.exchange + 1
    }

    /// For which turn the other rank has published, if that is another than `turn` of the last ones.
    pub(super) fn other_turn(&self, turn: u64) -> Option<u64> {
        let said = self.line(self.theirs()).sequence.load(Ordering::Acquire) >> EXCHANGE_BITS;
        let behind = turn.wrapping_sub(said) & (u64::MAX >> EXCHANGE_BITS);
        (self.is_there() && behind > 0).then(|| turn.checked_sub(behind)).flatten()
    }

    /// How many of the other's `bytes` are there.
    #[inline]
    pub(super) fn arrived(&mut self, bytes: usize) -> usize {
        self.looked = bytes;
        let line = self.line(self.theirs());
        if !self.is_there() {
            0
        } else if bytes <= INLINE_BYTES {
            bytes
        } else {
            usize::try_from(line.there.load(Ordering::Acquire) & !WHOLE).unwrap_or(usize::MAX).min(bytes)
        }
    }

    /// Bytes of the other's message of `bytes`.
    ///
    /// # Safety
    ///
    /// They have [arrived](Pair::arrived), and the exchange has not ended while the slice lives.
    #[inline]
    pub(super) unsafe fn part(&self, bytes: usize, range: Range<usize>) -> &[u8] {
        let cell = self.theirs();
        if bytes <= INLINE_BYTES {
            assert!(range.end <= INLINE_BYTES);
            // SAFETY: within the line, and its writer doesn't touch it now (the caller).
            return self.line(cell).bytes.with(|line| unsafe {
                std::slice::from_raw_parts(line.cast::<u8>().add(HEADING_BYTES + range.start), range.len())
            });
        }
        assert!(range.end <= self.memory.payload_bytes);
        // SAFETY: within the payload, and its writer doesn't touch it now (the caller).
        unsafe { std::slice::from_raw_parts(self.memory.payloads[cell].add(range.start), range.len()) }
    }

    /// Ends the exchange: the cell that was read is this rank's.
    ///
    /// Lines that it won't write in the next one, as far as can be told, it touches: see the ring's README, "lines on the way
    /// back".
    #[inline]
    pub(super) fn finish(&mut self) {
        let (wrote, looked) = (std::mem::take(&mut self.wrote), std::mem::take(&mut self.looked));
        let is_whole = self.line(self.theirs()).there.load(Ordering::Acquire) & WHOLE != 0;
        if looked > wrote && looked > INLINE_BYTES && is_whole {
            let payload = self.memory.payloads[self.theirs()];
            for at in (0..looked.min(self.memory.payload_bytes)).step_by(64) {
                // SAFETY: within the payload of the cell, whose message nobody reads any more.
                unsafe { payload.add(at).write_volatile(0) };
            }
        }
        self.exchange += 1;
    }
}
