//! Pinned memory of the host through which calls go that don't run on devices.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use paceline_transport::cuda::{Device, Event, HostMemory};

use super::refused;
use crate::error::Result;

/// In front of a block's bytes: the word that says that the host is done.
const HEAD: usize = 64;
/// The smallest block.
const BYTES_MIN: usize = 64 << 10;
/// How many unused blocks are kept.
const KEPT: usize = 16;
/// How long a block is kept that a stream still uses when the communicator is gone.
const PATIENCE: Duration = Duration::from_secs(600);

/// One block: a word, and the bytes of one call.
pub(super) struct Block(HostMemory);

impl Block {
    fn new(device: &Device, bytes: usize) -> Result<Block> {
        let whole = (bytes + HEAD).next_power_of_two().max(BYTES_MIN);
        device.pinned(whole).map(Block).map_err(refused)
    }

    /// How many bytes of a call it holds.
    fn bytes(&self) -> usize {
        self.0.bytes() - HEAD
    }

    /// Lets the stream that waits for it go on.
    pub(super) fn is_done(&self) {
        self.0.word(0).store(1, Ordering::Release);
    }

    /// Where streams find the word.
    pub(super) fn word(&self) -> u64 {
        self.0.device_address()
    }

    /// Where streams find a byte.
    pub(super) fn device_address(&self, at: usize) -> u64 {
        self.0.device_address() + (HEAD + at) as u64
    }

    /// Some of its bytes.
    ///
    /// # Safety
    ///
    /// The stream has done the copies before the host's turn, and waits; parts that are used at a time are apart.
    #[allow(clippy::mut_from_ref, reason = "parts are kept apart by the caller")]
    pub(super) unsafe fn part(&self, part: Range<usize>) -> &mut [u8] {
        // SAFETY: the caller's promise.
        unsafe { self.0.slice_mut(HEAD + part.start..HEAD + part.end) }
    }
}

/// A block and the place in a stream after which nothing uses it.
pub(super) struct Lease {
    block: Arc<Block>,
    end: Arc<Event>,
}

impl Lease {
    pub(super) fn is_over(&self) -> bool {
        // A stream whose context is lost does nothing any more.
        Arc::strong_count(&self.block) == 1 && self.end.is_done().unwrap_or(true)
    }

    /// Waits until nothing uses the block. One that is used for ever is never freed.
    pub(super) fn outlive(self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.is_over() {
            if Instant::now() >= deadline {
                tracing::warn!("{} bytes of pinned memory stay with a stream that doesn't go on", self.block.bytes());
                std::mem::forget(self);
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The blocks of a communicator.
#[derive(Default)]
pub(super) struct Pool {
    leases: Mutex<Vec<Lease>>,
}

impl Pool {
    /// A block of at least so many bytes that nothing uses.
    pub(super) fn take(&self, device: &Device, bytes: usize) -> Result<Arc<Block>> {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let free = (0..leases.len()).filter(|place| leases[*place].block.bytes() >= bytes);
        let least = free.filter(|place| leases[*place].is_over()).min_by_key(|place| leases[*place].block.bytes());
        match least {
            Some(place) => Ok(leases.swap_remove(place).block),
            None => {
                if leases.len() >= KEPT {
                    leases.retain(|lease| !lease.is_over());
                }
                drop(leases);
                Block::new(device, bytes).map(Arc::new)
            }
        }
    }

    /// A block that a stream uses up to this place.
    pub(super) fn lend(&self, block: Arc<Block>, end: Arc<Event>) {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).push(Lease { block, end });
    }

    /// All blocks, for who waits until they are free.
    pub(super) fn leave(&self) -> Vec<Lease> {
        std::mem::take(&mut *self.leases.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
