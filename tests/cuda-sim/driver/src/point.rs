//! Points in streams that may be waited for: the ends of operations.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use crate::clock::Clock;
use crate::handle::lock;

/// The end of one operation.
pub struct Point {
    reached: Mutex<Option<Reached>>,
    changed: Condvar,
}

/// When a point was reached, and what came before.
#[derive(Clone)]
pub struct Reached {
    pub at: Instant,
    pub clock: Clock,
}

impl Point {
    pub fn new() -> Arc<Point> {
        Arc::new(Point { reached: Mutex::new(None), changed: Condvar::new() })
    }

    /// The operation ended; `clock` is what it knows, itself included.
    pub fn reach(&self, clock: Clock) {
        *lock(&self.reached) = Some(Reached { at: Instant::now(), clock });
        self.changed.notify_all();
    }

    /// When it was reached, if it was.
    pub fn reached(&self) -> Option<Reached> {
        lock(&self.reached).clone()
    }

    pub fn is_reached(&self) -> bool {
        lock(&self.reached).is_some()
    }

    /// Waits until it is reached: as long as the stream takes, as a GPU's driver does.
    pub fn wait(&self) -> Reached {
        let mut reached = lock(&self.reached);
        loop {
            if let Some(reached) = &*reached {
                return reached.clone();
            }
            reached = self.changed.wait(reached).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
