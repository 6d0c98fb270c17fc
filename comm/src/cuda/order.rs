//! In which order calls over memory of devices run, among themselves and with those over memory of the host.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use paceline_transport::cuda::{Event, Stream};

use super::refused;
use crate::error::Result;

/// The calls of one communicator that wait for their streams, or run: calls made after them, over memory of the host, wait for
/// these, because all ranks number their calls in one order.
#[derive(Default)]
pub(crate) struct Pending {
    count: AtomicUsize,
    guard: Mutex<()>,
    changed: Condvar,
}

/// One of them.
pub(super) struct PendingCall(Arc<Pending>);

impl Pending {
    /// Whether there are any. Those that this thread has made before are seen.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Waits until there are none; whether that came before the deadline.
    pub(crate) fn wait(&self, deadline: Instant) -> bool {
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            guard = self.changed.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    pub(super) fn begin(self: &Arc<Pending>) -> PendingCall {
        self.count.fetch_add(1, Ordering::AcqRel);
        PendingCall(self.clone())
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Whoever has looked at the count before holds the guard until it waits.
            drop(self.0.guard.lock().unwrap_or_else(PoisonError::into_inner));
            self.0.changed.notify_all();
        }
    }
}

/// The stream that was given the last call, and the place behind it.
#[derive(Default)]
pub(super) struct LastStream(Option<(Stream, Arc<Event>)>);

impl LastStream {
    /// Lets a stream wait for the last call, if another has it. A stream that is being captured can't: whoever replays the
    /// graph orders it with other calls.
    pub(super) fn lead(&self, stream: &Stream) -> Result<()> {
        match &self.0 {
            Some((last, event)) if last.as_raw() != stream.as_raw() => stream.wait(event).map_err(refused),
            _ => Ok(()),
        }
    }

    /// Whether the last call is over. What is done on a device that is lost is over, too.
    pub(super) fn is_over(&self) -> bool {
        self.0.as_ref().is_none_or(|(_, event)| event.is_done().unwrap_or(true))
    }

    /// Waits until the last call is over.
    pub(super) fn wait(&self, deadline: Instant) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), |(_, event)| event.synchronize(deadline).map_err(refused))
    }

    pub(super) fn is_now(&mut self, stream: &Stream, event: Arc<Event>) {
        self.0 = Some((stream.clone(), event));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn calls_that_wait_are_waited_for() {
        let pending = Arc::new(Pending::default());
        assert!(pending.is_none());
        let (first, second) = (pending.begin(), pending.begin());
        drop(first);
        assert!(!pending.wait(Instant::now() + Duration::from_millis(20)));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                drop(second);
            });
            assert!(pending.wait(Instant::now() + Duration::from_secs(20)));
        });
    }
}
