//! Started calls over memory that the caller vouches for: for bindings, whose callers own the buffers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Communicator;
use super::prepare::Prepared;
use crate::engine::Completion;
use crate::error::Result;
use crate::request::Request;

/// A call that was started over memory that isn't the library's. Clones are of the same call.
///
/// Dropping it lets the call go on.
#[derive(Clone)]
pub struct RawWork {
    completion: Arc<Completion>,
}

impl Communicator {
    /// Starts any collective, described by data, and returns at once.
    ///
    /// ```
    /// # use paceline_comm::{Buffers, Collective, Communicator, DataType, Request};
    /// # let comm = &Communicator::in_process(1)?[0];
    /// let mut bytes = [7u8; 16];
    /// let request = Request::new(Collective::AllReduce, DataType::I32, 4, Buffers::InPlace(&mut bytes));
    /// // SAFETY: the work is waited for before the bytes are touched.
    /// let work = unsafe { comm.start_raw(request) }?;
    /// work.wait()?;
    /// # Ok::<(), paceline_comm::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The call can't be meant as it stands, the communicator belongs to the parent of this process, or a thread can't be had.
    /// What else goes wrong, the work tells.
    ///
    /// # Safety
    ///
    /// Until the work has ended or the communicator's last handle is dropped, the request's buffers stay where they are; nobody
    /// writes what the call reads, and nobody reads or writes what it writes.
    pub unsafe fn start_raw(&self, request: Request<'_>) -> Result<RawWork> {
        self.after_devices()?;
        let prepared = self.prepare(request)?;
        self.start_prepared(prepared)
    }

    pub(super) fn start_prepared(&self, prepared: Prepared) -> Result<RawWork> {
        let completion = self.inner.engine.submit(self.activate(prepared, None))?;
        Ok(RawWork { completion })
    }
}

impl RawWork {
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

impl std::fmt::Debug for RawWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RawWork {{ ended: {} }}", self.completion.peek().is_some())
    }
}
