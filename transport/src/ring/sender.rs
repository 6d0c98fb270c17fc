//! The sending end of a ring.

use super::{FrameLine, INLINE_BYTES, RingMemory};
use crate::link::{Channel, Stamp};
use crate::sync::atomic::Ordering;

/// Writes frames into its own memory; reads how far the receiver has come.
pub(crate) struct RingSender {
    memory: RingMemory,
    next: u64,
    consumed: u64,
}

// SAFETY: the pointers are to memory kept mapped by the owner, and only this value writes the sender's side of it.
unsafe impl Send for RingSender {}

impl RingSender {
    /// A sender over an untouched (zeroed) ring.
    ///
    /// # Safety
    /// The memory is valid and zeroed, stays mapped while the sender lives, and no other sender writes it.
    pub(crate) unsafe fn new(memory: RingMemory) -> RingSender {
        assert!(memory.slots.is_power_of_two());
        RingSender { memory, next: 0, consumed: 0 }
    }

    /// Puts one frame with the front of `message` into a free slot and says how many bytes it took; `None` when no slot
    /// is free.
    #[inline]
    pub(crate) fn send(&mut self, channel: Channel, stamp: Stamp, message: &[u8]) -> Option<usize> {
        if self.next >= self.consumed + self.memory.slots && !self.find_room() {
            return None;
        }
        let place = self.memory.place(self.next);
        let bytes = message.len().min(self.memory.slot_bytes);
        // SAFETY: `place` is below `slots`, so the line and the payload lie in the ring (`new`). The slot is free
        // (README, "consume before reuse"), so the receiver doesn't read it, and no one else writes it.
        unsafe {
            let line = &*self.memory.lines.add(place);
            line.frame.with_mut(|frame: *mut FrameLine| {
                (*frame).channel = channel.0;
                (*frame).stamp = stamp.0;
                (*frame).bytes = bytes as u64;
                let target = if bytes <= INLINE_BYTES {
                    (&raw mut (*frame).inline).cast::<u8>()
                } else {
                    self.memory.payload.add(place * self.memory.slot_bytes)
                };
                std::ptr::copy_nonoverlapping(message.as_ptr(), target, bytes);
            });
            // README, "publish before read".
            line.published.store(self.next + 1, Ordering::Release);
        }
        self.next += 1;
        Some(bytes)
    }

    /// Looks how far the receiver has come; whether there is a free slot now.
    #[cold]
    fn find_room(&mut self) -> bool {
        // SAFETY: the credit line is valid (`new`).
        let credit = unsafe { &*self.memory.credit };
        // README, "consume before reuse". A credit beyond what was sent is a faulty peer's: it must not make slots free.
        self.consumed = credit.consumed.load(Ordering::Acquire).clamp(self.consumed, self.next);
        self.next < self.consumed + self.memory.slots
    }
}
