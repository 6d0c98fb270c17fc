//! A single-producer, single-consumer ring of frames over memory that two ranks see. `README.md` has the reasoning.

mod asking;
mod cells;
mod link;
#[cfg(all(test, loom))]
mod model;
mod receiver;
mod sender;

pub(crate) const CELLS: usize = cells::CELLS;

pub(crate) use link::{RingLink, fence_before_waking};
use receiver::RingReceiver;
use sender::RingSender;

use crate::sync::UnsafeCell;
use crate::sync::atomic::AtomicU64;

/// Payload bytes that fit beside the control words, in the same cache line.
pub(crate) const INLINE_BYTES: usize = 24;
/// A cache line.
const LINE_BYTES: usize = 64;
/// In a frame's length: the receiver is asked to touch the payload's lines when it has read them.
const TOUCH: u32 = 1 << 31;

/// A slot's control line, written by the sender alone.
#[repr(C, align(64))]
pub(crate) struct SlotLine {
    /// Frame number plus one, stored last.
    pub(crate) published: AtomicU64,
    pub(crate) frame: UnsafeCell<FrameLine>,
}

/// What a slot holds.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FrameLine {
    pub(crate) channel: u64,
    pub(crate) stamp: [u64; 2],
    pub(crate) bytes: u32,
    /// Where a payload that isn't inline lies: in the ring's payload, or, from `payload_bytes` on, in the cell of that number.
    pub(crate) place: u32,
    pub(crate) inline: [u8; INLINE_BYTES],
}

/// How many frames the receiver has done with, written by the receiver alone.
#[repr(C, align(64))]
pub(crate) struct CreditLine {
    pub(crate) consumed: AtomicU64,
}

/// Where a ring lies. The pointers stay valid as long as whoever made the value keeps the memory mapped.
#[derive(Clone, Copy)]
pub(crate) struct RingMemory {
    /// `slots` control lines, in the sender's memory.
    pub(crate) lines: *const SlotLine,
    /// `payload_bytes` for the frames' payloads, in the sender's memory.
    pub(crate) payload: *mut u8,
    /// The credit line, in the receiver's memory.
    pub(crate) credit: *const CreditLine,
    /// Cells of `cell_bytes` each, in the sender's memory, which both write.
    pub(crate) cells: *mut u8,
    /// How many slots; a power of two.
    pub(crate) slots: u64,
    /// A multiple of 64, and at most 4 GiB.
    pub(crate) payload_bytes: usize,
    /// The longest frame.
    pub(crate) frame_bytes: usize,
    /// The length of a cell; 0 if there are none.
    pub(crate) cell_bytes: usize,
    /// Whether ranks share cores.
    pub(crate) crowded: bool,
}

impl RingMemory {
    #[inline(always)]
    fn slot(&self, frame: u64) -> usize {
        (frame & (self.slots - 1)) as usize
    }
}
