//! How many bytes this process has moved over such links, by the way they went.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of messages that this process has moved over InfiniBand and RoCE, those of all links together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Sent by copying into a slot, or into the request.
    pub copied_in: u64,
    /// Fetched from where they lay, into memory of the link's.
    pub landed: u64,
    /// Fetched from where they lay to where they belong: nobody copies them.
    pub placed: u64,
    /// Received by copying out of memory of the link's. Bytes that were read where they had arrived are not among them.
    pub copied_out: u64,
}

static COPIED_IN: AtomicU64 = AtomicU64::new(0);
static LANDED: AtomicU64 = AtomicU64::new(0);
static PLACED: AtomicU64 = AtomicU64::new(0);
static COPIED_OUT: AtomicU64 = AtomicU64::new(0);

impl Traffic {
    /// So far.
    #[must_use]
    pub fn so_far() -> Traffic {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic {
            copied_in: read(&COPIED_IN),
            landed: read(&LANDED),
            placed: read(&PLACED),
            copied_out: read(&COPIED_OUT),
        }
    }

    /// Bytes that passed through memory of a link's since `earlier`, on either side.
    #[must_use]
    pub fn through_slots_since(&self, earlier: &Traffic) -> u64 {
        (self.copied_in - earlier.copied_in) + (self.landed - earlier.landed) + (self.copied_out - earlier.copied_out)
    }
}

#[inline]
pub(super) fn copied_in(bytes: usize) {
    COPIED_IN.fetch_add(bytes as u64, Ordering::Relaxed);
}

#[inline]
pub(super) fn landed(bytes: usize) {
    LANDED.fetch_add(bytes as u64, Ordering::Relaxed);
}

#[inline]
pub(super) fn placed(bytes: usize) {
    PLACED.fetch_add(bytes as u64, Ordering::Relaxed);
}

#[inline]
pub(super) fn copied_out(bytes: usize) {
    COPIED_OUT.fetch_add(bytes as u64, Ordering::Relaxed);
}
