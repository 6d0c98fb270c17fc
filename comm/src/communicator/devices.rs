//! What calls over memory of devices need of a communicator.

use std::sync::{Arc, Weak};
use std::time::Instant;

use super::{Communicator, Inner};
use crate::cuda::Pending;
use crate::error::{Error, ErrorKind, Result};
use crate::request::CallOptions;

/// A handle that doesn't keep its communicator.
pub(crate) struct WeakCommunicator {
    inner: Weak<Inner>,
    options: CallOptions,
}

impl WeakCommunicator {
    /// The communicator, if it is still there.
    pub(crate) fn upgrade(&self) -> Option<Communicator> {
        Some(Communicator { inner: self.inner.upgrade()?, options: self.options.clone() })
    }
}

impl Communicator {
    /// Another handle with the same options.
    pub(crate) fn again(&self) -> Communicator {
        self.with(self.options.clone())
    }

    pub(crate) fn downgrade(&self) -> WeakCommunicator {
        WeakCommunicator { inner: Arc::downgrade(&self.inner), options: self.options.clone() }
    }

    /// The calls over memory of devices that wait for their streams, or run.
    pub(crate) fn pending(&self) -> &Arc<Pending> {
        &self.inner.pending
    }

    /// The algorithm that the handle's calls ask for.
    pub(crate) fn wish(&self) -> Option<&str> {
        self.options.algorithm.as_deref()
    }

    /// Looks for what other ranks have told, without waiting: which have left, or why the communicator has failed.
    pub(crate) fn look(&self) -> Result<Vec<usize>> {
        self.inner.engine.look()
    }

    #[cold]
    pub(super) fn wait_for_devices(&self) -> Result<()> {
        let timeout = self.timeout();
        if self.inner.pending.wait(Instant::now() + timeout) {
            return Ok(());
        }
        let cause = format!("calls over memory of a device, made before this one, have not ended after {timeout:.1?}");
        let hint = "their stream has not got to them: look at what it runs before, or wait for it first";
        Err(Error::new(ErrorKind::Timeout, cause).hint(hint))
    }
}
