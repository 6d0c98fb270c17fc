//! The sending end of a ring.

use super::asking::Asking;
use super::cells::Cells;
use super::{FrameLine, INLINE_BYTES, RingMemory, TOUCH};
use crate::extents::Extents;
use crate::link::{Channel, Stamp};
use crate::sync::atomic::Ordering;

/// Payloads up to this length are best written where the last ones were, if ranks share cores: the caches of both are one then.
const REUSED_BYTES: usize = 8 << 10;
/// How much of the payloads' area is used then: more wouldn't stay in the cores' caches, and fresh pages are slow.
const CROWDED_BYTES: usize = 512 << 10;

/// Writes frames into its own memory; reads how far the receiver has come.
pub(super) struct RingSender {
    memory: RingMemory,
    next: u64,
    consumed: u64,
    /// Where the payloads of frames lie that the receiver may still read.
    extents: Extents,
    asking: Asking,
}

// SAFETY: the pointers are to memory kept mapped by the owner, and only this value writes the sender's side of it.
unsafe impl Send for RingSender {}

impl RingSender {
    /// A sender over an untouched (zeroed) ring.
    ///
    /// # Safety
    /// The memory is valid and zeroed, stays mapped while the sender lives, and no other sender writes it.
    pub(super) unsafe fn new(memory: RingMemory) -> RingSender {
        assert!(memory.slots.is_power_of_two() && memory.frame_bytes <= memory.payload_bytes.max(INLINE_BYTES));
        let (extents, asking) = (Extents::new(memory.payload_bytes), Asking::new(memory.payload_bytes));
        RingSender { memory, next: 0, consumed: 0, extents, asking }
    }

    /// How many frames were sent.
    pub(super) fn sent(&self) -> u64 {
        self.next
    }

    /// Puts one frame with the front of `message` into the ring and says how many bytes it took; `None` when there is no
    /// room.
    #[inline]
    pub(super) fn send(&mut self, cells: &mut Cells, channel: Channel, stamp: Stamp, message: &[u8]) -> Option<usize> {
        let bytes = message.len().min(self.memory.frame_bytes);
        if !self.has_slot() {
            return None;
        }
        if bytes <= INLINE_BYTES {
            self.publish(channel, stamp, message, bytes, 0);
        } else if let Some(cell) = cells.take(bytes) {
            // SAFETY: the cell is this rank's until the frame is published (README, "cells that change hands"), and that long.
            unsafe { std::ptr::copy_nonoverlapping(message.as_ptr(), cells.start(cell), bytes) };
            self.publish(channel, stamp, message, bytes, self.memory.payload_bytes + cell);
        } else {
            let place = self.room_for(bytes)?;
            let start = self.asking.start(bytes);
            let touch = if self.asking.next() { TOUCH as usize } else { 0 };
            // SAFETY: the place is within the payload and free (README, "consume before reuse"), so the receiver doesn't read
            // it, and no one else writes it.
            unsafe { std::ptr::copy_nonoverlapping(message.as_ptr(), self.memory.payload.add(place), bytes) };
            self.extents.take(self.next, &(place..place + bytes));
            self.publish(channel, stamp, message, bytes | touch, place);
            self.asking.end(start, bytes);
        }
        Some(bytes)
    }

    /// Fills the next slot, with the front of `message` if it is short.
    #[inline]
    fn publish(&mut self, channel: Channel, stamp: Stamp, message: &[u8], bytes: usize, place: usize) {
        // SAFETY: the slot is one of `slots`, so the line lies in the ring (`new`). It is free (README, "consume before
        // reuse"), so the receiver doesn't read it, and no one else writes it.
        unsafe {
            let line = &*self.memory.lines.add(self.memory.slot(self.next));
            line.frame.with_mut(|frame: *mut FrameLine| {
                (*frame).channel = channel.0;
                (*frame).stamp = stamp.0;
                (*frame).bytes = bytes as u32;
                (*frame).place = place as u32;
                if bytes <= INLINE_BYTES {
                    let inline = (&raw mut (*frame).inline).cast::<u8>();
                    std::ptr::copy_nonoverlapping(message.as_ptr(), inline, bytes);
                }
            });
            // README, "publish before read".
            line.published.store(self.next + 1, Ordering::Release);
        }
        self.next += 1;
    }

    /// Whether there is a free slot.
    #[inline]
    fn has_slot(&mut self) -> bool {
        let has = |ring: &RingSender| ring.next < ring.consumed + ring.memory.slots;
        has(self) || {
            self.look_for_room();
            has(self)
        }
    }

    /// Where in the payload's area that many bytes may lie, if there is room.
    #[inline]
    fn room_for(&mut self, bytes: usize) -> Option<usize> {
        if self.memory.crowded && bytes <= REUSED_BYTES {
            self.look_for_room();
            self.extents.restart();
        }
        let most = if self.memory.crowded { CROWDED_BYTES } else { usize::MAX };
        let find = |ring: &RingSender| ring.extents.find_within(ring.asking.front().min(most), bytes);
        find(self).or_else(|| {
            self.look_for_room();
            find(self)
        })
    }

    /// Looks how far the receiver has come.
    #[inline(never)]
    fn look_for_room(&mut self) {
        // SAFETY: the credit line is valid (`new`).
        let credit = unsafe { &*self.memory.credit };
        // README, "consume before reuse". A credit beyond what was sent is a faulty peer's: it must not make room.
        self.consumed = credit.consumed.load(Ordering::Acquire).clamp(self.consumed, self.next);
        self.extents.release_below(self.consumed);
    }
}
