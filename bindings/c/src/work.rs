//! Works as C holds them: one call, or all of a group.

#![forbid(unsafe_code)]

use std::ffi::c_void;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use paceline_comm::Started;

use crate::comm::Comm;
use crate::error::{Failure, IN_PROGRESS, SUCCESS, pclResult};
use crate::guard;
use crate::handles::{Kind, Room};

static WORKS: Room<Work> = Room::new(Kind::Work);

/// What was started: calls over memory of the host, and over memory of devices.
pub(crate) struct Work {
    /// The function that started it.
    name: &'static str,
    parts: Vec<(Part, Weak<Comm>)>,
}

pub(crate) enum Part {
    Host(Started),
    #[cfg(feature = "cuda")]
    Device(paceline_comm::cuda::DeviceWork),
}

/// A handle for a work.
pub(crate) fn admit(name: &'static str, parts: Vec<(Part, Weak<Comm>)>) -> *mut c_void {
    WORKS.admit(Arc::new(Work { name, parts }))
}

pub(crate) fn find(handle: *mut c_void) -> Result<Arc<Work>, Failure> {
    WORKS.find(handle)
}

pub(crate) fn free(handle: *mut c_void) -> Result<(), Failure> {
    WORKS.dismiss(handle).map(drop)
}

impl Part {
    /// How it ended, if it has within `timeout`.
    fn wait(&self, timeout: Option<Duration>) -> Option<Result<(), Failure>> {
        match self {
            Part::Host(work) => match timeout {
                Some(Duration::ZERO) => work.test(),
                Some(timeout) => work.wait_timeout(timeout),
                None => Some(work.wait()),
            }
            .map(|end| end.map_err(Failure::from)),
            #[cfg(feature = "cuda")]
            Part::Device(work) => crate::device::wait(work, timeout),
        }
    }
}

impl Work {
    /// Waits for all parts, for ever where there is no timeout; how it ended, or that it hasn't.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> pclResult {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut outcome = SUCCESS;
        for (part, comm) in &self.parts {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            match part.wait(left) {
                None => return IN_PROGRESS,
                Some(Ok(())) => {}
                Some(Err(failure)) if outcome == SUCCESS => {
                    outcome = guard::tell(self.name, failure, comm.upgrade().as_deref());
                }
                Some(Err(_)) => {}
            }
        }
        outcome
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().map(|(part, _)| part)
    }
}
