//! A call that was started and goes on by itself.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use super::Started;
use crate::error::{Error, ErrorKind, Result};
use crate::reduce::Element;

/// A started call. It owns its buffers and makes progress while the caller computes.
///
/// Dropping it lets the call go on; its result is then lost.
pub struct Work<T> {
    started: Started,
    buffers: Arc<WorkBuffers<T>>,
}

/// What a started call reads and writes. The engine holds it as long as it may touch it.
pub(super) struct WorkBuffers<T> {
    pub(super) input: Vec<T>,
    pub(super) output: Vec<T>,
    /// Whether `input` is the result, and not `output`.
    pub(super) in_place: bool,
}

impl<T: Element> Work<T> {
    pub(super) fn new(started: Started, buffers: Arc<WorkBuffers<T>>) -> Work<T> {
        Work { started, buffers }
    }

    /// Whether the call has ended, well or not.
    #[must_use]
    pub fn test(&self) -> bool {
        self.started.test().is_some()
    }

    /// Waits for the end, at most `timeout`; whether it came. The call itself goes on either way.
    #[must_use]
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.started.wait_timeout(timeout).is_some()
    }

    /// Waits for the end and gives the result: the received or reduced elements; of a `start_send`, the buffer back.
    ///
    /// # Errors
    ///
    /// As the blocking call; at the latest at the call's own timeout.
    pub fn wait(self) -> Result<Vec<T>> {
        self.started.wait()?;
        let buffers = Arc::try_unwrap(self.buffers);
        let buffers = buffers
            .map_err(|_| Error::new(ErrorKind::Internal, "the engine kept the buffers of a call that has ended"))?;
        Ok(if buffers.in_place { buffers.input } else { buffers.output })
    }
}

impl<T: Element> WorkBuffers<T> {
    pub(super) fn keep(self: &Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self.clone()
    }
}

impl<T> std::fmt::Debug for Work<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Work {{ ended: {} }}", self.started.test().is_some())
    }
}
