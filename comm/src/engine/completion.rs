//! How a call that its own thread does not drive ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::error::Result;

/// How a submitted call ended, for whoever waits.
pub(crate) struct Completion {
    result: Mutex<Option<Result<()>>>,
    changed: Condvar,
    awaited: AtomicBool,
}

impl Completion {
    pub(crate) fn new() -> Arc<Completion> {
        Arc::new(Completion { result: Mutex::new(None), changed: Condvar::new(), awaited: AtomicBool::new(false) })
    }

    pub(crate) fn end(&self, result: Result<()>) {
        *self.result.lock().expect("no panic while held") = Some(result);
        self.changed.notify_all();
    }

    /// How it ended, if it has.
    pub(crate) fn peek(&self) -> Option<Result<()>> {
        self.result.lock().expect("no panic while held").clone()
    }

    /// Whether somebody waits now. Who computes meanwhile does not.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed)
    }

    /// Waits for the end, at most until `deadline`.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Option<Result<()>> {
        self.awaited.store(true, Ordering::Relaxed);
        let end = self.wait_for_end(deadline);
        self.awaited.store(false, Ordering::Relaxed);
        end
    }

    /// Waits for the end, and looks at something else meanwhile, again and again.
    pub(crate) fn wait_looking(&self, every: Duration, mut look: impl FnMut()) -> Result<()> {
        loop {
            if let Some(end) = self.wait(Instant::now().checked_add(every)) {
                return end;
            }
            look();
        }
    }

    fn wait_for_end(&self, deadline: Option<Instant>) -> Option<Result<()>> {
        let mut result = self.result.lock().expect("no panic while held");
        loop {
            if let Some(result) = &*result {
                return Some(result.clone());
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return None;
            }
            result = match left {
                Some(left) => self.changed.wait_timeout(result, left).expect("no panic while held").0,
                None => self.changed.wait(result).expect("no panic while held"),
            };
        }
    }
}
