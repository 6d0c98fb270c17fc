//! How a sleeping rank is woken: an event counter, and flags that say whether anyone needs to write to it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use rustix::event::EventfdFlags;

/// An event counter that wakes one rank.
#[derive(Clone, Debug)]
pub(crate) struct Doorbell {
    counter: Arc<OwnedFd>,
}

impl Doorbell {
    pub(crate) fn new() -> std::io::Result<Doorbell> {
        let counter = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Doorbell::of(counter))
    }

    /// The doorbell behind a counter that a neighbour passed on.
    pub(crate) fn of(counter: OwnedFd) -> Doorbell {
        Doorbell { counter: Arc::new(counter) }
    }

    /// Wakes the owner, now or at its next attempt to sleep.
    pub(crate) fn ring(&self) {
        // A full counter (EAGAIN) already wakes the owner, and a closed one has no owner to wake.
        let _ = rustix::io::write(&self.counter, &1u64.to_ne_bytes());
    }

    /// Forgets the rings so far.
    pub(crate) fn quiet(&self) {
        let mut count = [0u8; 8];
        // EAGAIN means that nobody has rung.
        let _ = rustix::io::read(&self.counter, &mut count);
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }
}

/// Wakes a rank from another thread of its own process.
#[derive(Clone, Debug)]
pub struct Waker {
    pub(crate) doorbell: Doorbell,
    pub(crate) sleeping: Arc<AtomicBool>,
}

impl Waker {
    /// Makes the owner look around if it sleeps. What it should see must have been stored before the call.
    pub fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) {
            self.doorbell.ring();
        }
    }
}
