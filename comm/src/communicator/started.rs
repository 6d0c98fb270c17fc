//! A call that was started over buffers which somebody else owns.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Communicator;
use crate::engine::Completion;
use crate::error::Result;
use crate::request::Request;

/// A call started by [`Communicator::start_request`]. It goes on by itself, also when this is dropped.
pub struct Started {
    completion: Arc<Completion>,
}

impl Communicator {
    /// Starts any collective, described by data, and returns at once.
    ///
    /// `keep` is dropped when the call no longer touches its buffers, by any thread and before the call counts as ended; it may
    /// own them.
    ///
    /// # Safety
    ///
    /// The request's buffers are lent until the call has ended, beyond the request's own lifetime: what `keep` owns, or what the
    /// caller leaves alone until [`Started::test`] is true.
    ///
    /// # Errors
    ///
    /// If the call can't be meant as it stands, or there can be no thread for it; then it has not begun.
    pub unsafe fn start_request(&self, request: Request<'_>, keep: Arc<dyn Any + Send + Sync>) -> Result<Started> {
        self.after_devices()?;
        let prepared = self.prepare(request)?;
        let completion = self.inner.engine.submit(self.activate(prepared, Some(keep)))?;
        Ok(Started { completion })
    }
}

impl Started {
    /// Whether the call has ended, well or not.
    #[must_use]
    pub fn test(&self) -> bool {
        self.completion.peek().is_some()
    }

    /// Waits for the end, at most `timeout`; whether it came. The call itself goes on either way.
    #[must_use]
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.completion.wait(Instant::now().checked_add(timeout)).is_some()
    }

    /// Waits for the end.
    ///
    /// # Errors
    ///
    /// As the blocking call; at the latest at the call's own timeout.
    pub fn wait(&self) -> Result<()> {
        self.completion.wait(None).expect("waits without a deadline")
    }
}

impl std::fmt::Debug for Started {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Started {{ ended: {} }}", self.test())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::collective::Collective;
    use crate::reduce::{DataType, ReduceOp, as_bytes_mut};
    use crate::request::Buffers;

    #[test]
    fn what_is_kept_is_dropped_before_the_call_counts_as_ended() {
        struct Kept(Arc<Mutex<Vec<usize>>>, usize);
        impl Drop for Kept {
            fn drop(&mut self) {
                self.0.lock().unwrap().push(self.1);
            }
        }
        let dropped = Arc::new(Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for comm in Communicator::in_process(2).unwrap() {
                let dropped = dropped.clone();
                scope.spawn(move || {
                    let mut elements = [1i32 + comm.rank() as i32; 3];
                    let buffers = Buffers::InPlace(as_bytes_mut(&mut elements));
                    let request = Request::new(Collective::AllReduce, DataType::I32, 3, buffers).op(ReduceOp::Sum);
                    let keep = Arc::new(Kept(dropped.clone(), comm.rank()));
                    // SAFETY: the elements live until the call has ended, below.
                    let started = unsafe { comm.start_request(request, keep) }.unwrap();
                    started.wait().unwrap();
                    assert!(started.test() && dropped.lock().unwrap().contains(&comm.rank()));
                    assert_eq!(elements, [3; 3]);
                });
            }
        });
    }
}
