//! Giving things back to the driver without waiting for ever.
//!
//! Freeing memory may wait until the device has done all that it was given before, and that may never end: a stream may
//! wait for a peer that is dead. Whoever drops waits some time; then a thread of its own goes on waiting.

#![forbid(unsafe_code)]

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use super::CudaError;

/// How long a drop waits.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs `job`, which gives something back, on a thread of its own, and waits for it for some time. What goes wrong is logged.
pub(super) fn give_back(
    what: &'static str,
    device: usize,
    job: impl FnOnce() -> Result<(), CudaError> + Send + 'static,
) {
    give_back_within(PATIENCE, what, device, job);
}

fn give_back_within(
    patience: Duration,
    what: &'static str,
    device: usize,
    job: impl FnOnce() -> Result<(), CudaError> + Send + 'static,
) {
    let (done, wait) = channel();
    let started = std::thread::Builder::new().name("paceline-free".to_owned()).spawn(move || {
        report(what, device, job());
        // The other end may have stopped waiting.
        let _ = done.send(());
    });
    match started.map(|_| wait.recv_timeout(patience)) {
        Ok(Ok(()) | Err(RecvTimeoutError::Disconnected)) => {}
        Ok(Err(RecvTimeoutError::Timeout)) => tracing::warn!(
            "CUDA device {device}: {what} has not been given back within {patience:.1?}, because something still runs or \
             waits there; a thread goes on"
        ),
        Err(error) => tracing::warn!("CUDA device {device}: {what} stays with the driver: no thread: {error}"),
    }
}

/// Logs what went wrong while something was given back.
pub(super) fn report(what: &str, device: usize, result: Result<(), CudaError>) {
    match result {
        Ok(()) => {}
        // All that the context had is gone with it, and who used it has been told.
        Err(error) if error.is_fatal() => tracing::debug!("CUDA device {device}: {what}: {error}"),
        Err(error) => tracing::warn!("CUDA device {device}: {what} could not be given back: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::*;

    #[test]
    fn what_ends_is_waited_for() {
        let ended = Arc::new(AtomicBool::new(false));
        let mark = ended.clone();
        give_back("a test's memory", 0, move || {
            mark.store(true, Ordering::Release);
            Ok(())
        });
        assert!(ended.load(Ordering::Acquire));
    }

    #[test]
    fn what_never_ends_is_not() {
        let (release, held) = channel::<()>();
        let began = Instant::now();
        give_back_within(Duration::from_millis(10), "a test's memory", 0, move || {
            let _ = held.recv();
            Ok(())
        });
        assert!(began.elapsed() < PATIENCE);
        drop(release);
    }

    #[test]
    fn a_panic_ends_the_wait() {
        give_back("a test's memory", 0, || panic!("planted"));
    }
}
