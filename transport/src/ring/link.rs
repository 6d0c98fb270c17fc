//! A link over two rings, one each way: what the inproc and the shm link have in common.

use std::sync::atomic::{Ordering, fence};

use super::cells::Cells;
use super::{RingReceiver, RingSender};
use crate::doorbell::Doorbell;
use crate::link::{Channel, Head, LinkError, Stamp};
use crate::memory::Stretch;
use crate::segment::SharedSegment;

/// Two rings between this rank and a neighbour, and the neighbour's doorbell.
pub(crate) struct RingLink {
    leaving: RingSender,
    arriving: RingReceiver,
    cells: Cells,
    theirs: SharedSegment,
    bell: Doorbell,
    /// Something was published or consumed since the last look at the peer's sleeping flag.
    touched: bool,
    _mine: SharedSegment,
    /// The neighbour's ring to this rank, mapped for writing.
    _arriving: Option<Stretch>,
}

impl RingLink {
    /// Joins the owner of `mine`, who has place `my_place` among the neighbours, and the owner of `theirs`.
    ///
    /// Each pair of places may be joined once only.
    ///
    /// # Errors
    ///
    /// The kernel has no memory for a mapping.
    pub(crate) fn new(
        (mine, my_place): (SharedSegment, usize),
        (theirs, their_place): (SharedSegment, usize),
        bell: Doorbell,
    ) -> std::io::Result<RingLink> {
        let outgoing = mine.ring_to(their_place, &theirs, my_place);
        let (incoming, stretch) = theirs.ring_from(my_place, &mine, their_place)?;
        let cells = Cells::new(&outgoing, &incoming);
        // SAFETY: the segments are held by the link, zeroed when made, and this pair of places is joined once only.
        let (leaving, arriving) = unsafe { (RingSender::new(outgoing), RingReceiver::new(incoming)) };
        Ok(RingLink { leaving, arriving, cells, theirs, bell, touched: false, _mine: mine, _arriving: stretch })
    }

    #[inline]
    pub(crate) fn send(&mut self, channel: Channel, stamp: Stamp, message: &[u8]) -> Option<usize> {
        let sent = self.leaving.send(&mut self.cells, channel, stamp, message);
        self.touched |= sent.is_some();
        sent
    }

    #[inline]
    pub(crate) fn head(&mut self) -> Result<Option<Head<'_>>, LinkError> {
        self.arriving.head(&self.cells)
    }

    #[inline]
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.touched |= self.arriving.advance(&mut self.cells, bytes);
    }

    /// How many frames were sent, and how many received.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.leaving.sent(), self.arriving.received())
    }

    /// Whether no frame is half read, and none is known to be unread.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.arriving.is_between_frames() && matches!(self.head(), Ok(None))
    }

    /// The segment of the peer.
    pub(crate) fn neighbour(&self) -> &SharedSegment {
        &self.theirs
    }

    /// Notes that the peer has something to see beside the rings.
    #[inline]
    pub(crate) fn touch(&mut self) {
        self.touched = true;
    }

    /// Whether the peer may have to be woken: then `ring_if_asleep` follows a full fence.
    #[inline]
    pub(crate) fn take_touched(&mut self) -> bool {
        std::mem::take(&mut self.touched)
    }

    /// Wakes the peer if it sleeps. The caller has made a full fence since the last publishing or consuming.
    #[inline]
    pub(crate) fn ring_if_asleep(&self) {
        if self.theirs.is_sleeping() {
            self.bell.ring();
        }
    }
}

/// The fence of `ring/README.md`, "sleep and wake".
#[inline]
pub(crate) fn fence_before_waking() {
    fence(Ordering::SeqCst);
}
