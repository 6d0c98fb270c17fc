//! The sending end of a ring.

use super::asking::Asking;
use super::{FrameLine, INLINE_BYTES, RingMemory, TOUCH};
use crate::extents::Extents;
use crate::link::{Channel, Stamp};
use crate::sync::atomic::Ordering;

/// Writes frames into its own memory; reads how far the receiver has come.
pub(crate) struct RingSender {
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
    pub(crate) unsafe fn new(memory: RingMemory) -> RingSender {
        assert!(memory.slots.is_power_of_two() && memory.frame_bytes <= memory.payload_bytes.max(INLINE_BYTES));
        let (extents, asking) = (Extents::new(memory.payload_bytes), Asking::new(memory.payload_bytes));
        RingSender { memory, next: 0, consumed: 0, extents, asking }
    }

    /// Puts one frame with the front of `message` into the ring and says how many bytes it took; `None` when there is no
    /// room.
    #[inline]
    pub(crate) fn send(&mut self, channel: Channel, stamp: Stamp, message: &[u8]) -> Option<usize> {
        let bytes = message.len().min(self.memory.frame_bytes);
        let place = self.room_for(bytes)?;
        let start = self.asking.start(bytes);
        let touch = if bytes > INLINE_BYTES && self.asking.next() { TOUCH } else { 0 };
        // SAFETY: the slot is one of `slots`, so the line lies in the ring, and the place is within the payload (`new`).
        // Both are free (README, "consume before reuse"), so the receiver doesn't read them, and no one else writes them.
        unsafe {
            let line = &*self.memory.lines.add(self.memory.slot(self.next));
            line.frame.with_mut(|frame: *mut FrameLine| {
                (*frame).channel = channel.0;
                (*frame).stamp = stamp.0;
                (*frame).bytes = bytes as u32 | touch;
                (*frame).place = place as u32;
                let target = if bytes <= INLINE_BYTES {
                    (&raw mut (*frame).inline).cast::<u8>()
                } else {
                    self.memory.payload.add(place)
                };
                std::ptr::copy_nonoverlapping(message.as_ptr(), target, bytes);
            });
            // README, "publish before read".
            line.published.store(self.next + 1, Ordering::Release);
        }
        self.asking.end(start, bytes);
        if bytes > INLINE_BYTES {
            self.extents.take(self.next, &(place..place + bytes));
        }
        self.next += 1;
        Some(bytes)
    }

    /// Where a payload of that many bytes may lie, if there is a slot and room.
    #[inline]
    fn room_for(&mut self, bytes: usize) -> Option<usize> {
        let find = |ring: &RingSender| {
            if ring.next >= ring.consumed + ring.memory.slots {
                return None;
            }
            if bytes <= INLINE_BYTES { Some(0) } else { ring.extents.find_within(ring.asking.front(), bytes) }
        };
        find(self).or_else(|| {
            self.look_for_room();
            find(self)
        })
    }

    /// Looks how far the receiver has come.
    #[cold]
    fn look_for_room(&mut self) {
        // SAFETY: the credit line is valid (`new`).
        let credit = unsafe { &*self.memory.credit };
        // README, "consume before reuse". A credit beyond what was sent is a faulty peer's: it must not make room.
        self.consumed = credit.consumed.load(Ordering::Acquire).clamp(self.consumed, self.next);
        self.extents.release_below(self.consumed);
    }
}
