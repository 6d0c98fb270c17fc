//! What other threads want of the driver.

use std::sync::Mutex;

use super::active::Active;
use super::handover::Submissions;
use crate::error::Error;

/// What other threads want of the driver.
pub(crate) struct Attention {
    submissions: Submissions<Active>,
    stop: Mutex<Option<Stop>>,
}

/// Why a driver should stop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// Somebody asked for it, for this reason; the peers are told.
    Fail(Error),
    /// The communicator is being dropped; the peers see that this rank leaves.
    Drop,
}

impl Attention {
    pub(crate) fn new() -> Attention {
        Attention { submissions: Submissions::new(), stop: Mutex::new(None) }
    }

    /// Leaves a call for the driver. The caller then wakes it, and signals the progress thread.
    pub(crate) fn submit(&self, active: Active) {
        self.submissions.push(active);
    }

    #[inline(always)]
    pub(crate) fn is_raised(&self) -> bool {
        self.submissions.is_raised()
    }

    /// Takes what there is: calls to run, and whether to stop.
    pub(crate) fn take(&self) -> (Vec<Active>, Option<Stop>) {
        (self.submissions.take(), self.stop.lock().expect("no panic while held").clone())
    }

    /// Asks the driver to stop; the first reason counts.
    pub(crate) fn stop(&self, stop: Stop) {
        self.stop.lock().expect("no panic while held").get_or_insert(stop);
        self.submissions.raise();
    }
}
