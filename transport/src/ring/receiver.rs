//! The receiving end of a ring.

use super::cells::Cells;
use super::{FrameLine, INLINE_BYTES, LINE_BYTES, RingMemory, TOUCH};
use crate::link::{Channel, Head, LinkError, Stamp};
use crate::sync::atomic::Ordering;

/// Reads frames where the sender wrote them; writes how far it has come, and into lines that it has read.
pub(super) struct RingReceiver {
    memory: RingMemory,
    next: u64,
    /// Bytes of the head frame already read.
    read: usize,
}

// SAFETY: the pointers are to memory kept mapped by the owner, and only this value writes the receiver's credit line.
unsafe impl Send for RingReceiver {}

impl RingReceiver {
    /// A receiver over an untouched (zeroed) ring.
    ///
    /// # Safety
    /// The memory is valid and zeroed, stays mapped while the receiver lives, and no other receiver uses it.
    pub(super) unsafe fn new(memory: RingMemory) -> RingReceiver {
        assert!(memory.slots.is_power_of_two());
        RingReceiver { memory, next: 0, read: 0 }
    }

    /// How many frames were wholly read.
    pub(super) fn received(&self) -> u64 {
        self.next
    }

    /// Whether none is read in part.
    pub(super) fn is_between_frames(&self) -> bool {
        self.read == 0
    }

    /// The oldest frame not wholly read, if one is here. Its bytes have all arrived.
    #[inline]
    pub(super) fn head(&mut self, cells: &Cells) -> Result<Option<Head<'_>>, LinkError> {
        // SAFETY: the slot is one of `slots`, so the line lies in the ring (`new`).
        let line = unsafe { &*self.memory.lines.add(self.memory.slot(self.next)) };
        // README, "publish before read".
        if line.published.load(Ordering::Acquire) != self.next + 1 {
            return Ok(None);
        }
        // SAFETY: the slot is filled and stays so until `advance` gives it back: nobody writes it meanwhile.
        let (frame, inline) =
            unsafe { line.frame.with(|frame: *const FrameLine| (*frame, (&raw const (*frame).inline).cast::<u8>())) };
        let (bytes, place) = ((frame.bytes & !TOUCH) as usize, frame.place as usize);
        let area = self.memory.payload_bytes;
        let start = if bytes <= INLINE_BYTES {
            inline
        } else if place >= area {
            cells.start(cells.of_peer(place - area, bytes)?)
        } else if place + bytes <= area {
            // SAFETY: the frame lies within the payload.
            unsafe { self.memory.payload.add(place) }
        } else {
            return Err(LinkError::Protocol(format!("a frame of {bytes} bytes at {place}, of {area}")));
        };
        let most = self.memory.frame_bytes;
        if bytes > most || bytes < self.read {
            return Err(LinkError::Protocol(format!("a frame of {bytes} bytes where at most {most} fit")));
        }
        // SAFETY: the frame lies in the ring or a cell, and `read` is at most `bytes`; the frame isn't written while it is filled, and
        // the borrow of `self` ends before `advance`.
        let unread = unsafe { std::slice::from_raw_parts(start.add(self.read), bytes - self.read) };
        Ok(Some(Head {
            channel: Channel(frame.channel),
            stamp: Stamp(frame.stamp),
            left: bytes - self.read,
            bytes: unread,
        }))
    }

    /// Marks `bytes` of the head frame as read; a frame that is wholly read gives its slot back. Whether it did.
    ///
    /// # Panics
    /// If there is no head frame, or it has fewer unread bytes.
    #[inline]
    pub(super) fn advance(&mut self, cells: &mut Cells, bytes: usize) -> bool {
        let left = self.head(cells).ok().flatten().expect("advance follows a head").left;
        assert!(bytes <= left, "advanced {bytes} bytes over a frame with {left} unread");
        if bytes < left {
            self.read += bytes;
            return false;
        }
        self.read = 0;
        self.give_back(cells);
        self.next += 1;
        // SAFETY: the credit line is valid (`new`), and only this receiver stores to it.
        let credit = unsafe { &*self.memory.credit };
        // README, "consume before reuse".
        credit.consumed.store(self.next, Ordering::Release);
        true
    }

    /// The head frame's payload isn't read any more: its cell is this rank's; or every line of it is written into, if the
    /// sender asks for it (README, "lines on the way back").
    #[inline]
    fn give_back(&self, cells: &mut Cells) {
        // SAFETY: as in `head`; the frame is this receiver's until `consumed` says otherwise.
        let line = unsafe { &*self.memory.lines.add(self.memory.slot(self.next)) };
        // SAFETY: as above.
        let (bytes, place) = line.frame.with(|frame| unsafe { ((*frame).bytes, (*frame).place as usize) });
        let length = (bytes & !TOUCH) as usize;
        if length <= INLINE_BYTES {
            return;
        }
        if place >= self.memory.payload_bytes {
            if let Ok(cell) = cells.of_peer(place - self.memory.payload_bytes, length) {
                cells.put(cell);
            }
        } else if bytes & TOUCH != 0 {
            self.touch_payload(place, length);
        }
    }

    fn touch_payload(&self, place: usize, bytes: usize) {
        let end = (place + bytes).min(self.memory.payload_bytes);
        for at in (place..end).step_by(LINE_BYTES) {
            // SAFETY: within the payload, of which this part is the receiver's.
            unsafe { self.memory.payload.add(at).write_volatile(0) };
        }
    }
}
