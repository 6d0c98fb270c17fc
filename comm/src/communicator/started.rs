//! Started calls over buffers that somebody else owns: for bindings, whose callers own them.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Communicator;
use super::prepare::Prepared;
use crate::engine::Completion;
use crate::error::Result;
use crate::request::Request;

/// A call that was started over buffers that aren't the library's. Clones are of the same call.
///
/// It goes on by itself, also when this is dropped.
#[derive(Clone)]
pub struct Started {
    completion: Arc<Completion>,
}

impl Communicator {
    /// Starts any collective, described by data, and returns at once.
    ///
    /// `keep` is dropped when the call no longer touches its buffers, by any thread and before the call counts as ended; it may
    /// own them.
    ///
    /// ```
    /// # use paceline_comm::{Buffers, Collective, Communicator, DataType, Request};
    /// # let comm = &Communicator::in_process(1)?[0];
    /// let mut bytes = [7u8; 16];
    /// let request = Request::new(Collective::AllReduce, DataType::I32, 4, Buffers::InPlace(&mut bytes));
    /// // SAFETY: the call is waited for before the bytes are touched.
    /// let started = unsafe { comm.start_request(request, None) }?;
    /// started.wait()?;
    /// # Ok::<(), paceline_comm::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The call can't be meant as it stands, the communicator belongs to the parent of this process, or a thread can't be had;
    /// then it has not begun. What else goes wrong, its end tells.
    ///
    /// # Safety
    ///
    /// The request's buffers are lent until the call has ended or the communicator's last handle is dropped, beyond the request's
    /// own lifetime: they stay where they are, nobody writes what the call reads, and nobody touches what it writes. `keep` may own
    /// them.
    pub unsafe fn start_request(
        &self,
        request: Request<'_>,
        keep: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Started> {
        self.after_devices()?;
        let prepared = self.prepare(request)?;
        self.start_prepared(prepared, keep)
    }

    pub(super) fn start_prepared(
        &self,
        prepared: Prepared,
        keep: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Started> {
        let completion = self.inner.engine.submit(self.activate(prepared, keep))?;
        Ok(Started { completion })
    }
}

impl Started {
    /// How it ended, if it has.
    #[must_use]
    pub fn test(&self) -> Option<Result<()>> {
        self.completion.peek()
    }

    /// Waits for the end, at most `timeout`; how it ended, if it has. The call itself goes on either way.
    #[must_use]
    pub fn wait_timeout(&self, timeout: Duration) -> Option<Result<()>> {
        self.completion.wait(Instant::now().checked_add(timeout))
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
        write!(f, "Started {{ ended: {} }}", self.test().is_some())
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
                    let started = unsafe { comm.start_request(request, Some(keep)) }.unwrap();
                    started.wait().unwrap();
                    assert!(started.test().is_some() && dropped.lock().unwrap().contains(&comm.rank()));
                    assert_eq!(elements, [3; 3]);
                });
            }
        });
    }
}
