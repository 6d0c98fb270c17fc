//! Launches under way, looked at now and then: a kernel that waits for a rank that is gone must be told.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::direct::Direct;
use super::order::LastStream;
use crate::communicator::WeakCommunicator;
use crate::error::{Error, ErrorKind};

/// What the watching thread looks at.
pub(super) struct Watch {
    pub(super) direct: Direct,
    pub(super) comm: WeakCommunicator,
    pub(super) last: Arc<Mutex<LastStream>>,
    watched: AtomicBool,
    /// Graphs may be launched at any time, without anybody's knowing.
    always: AtomicBool,
    /// Since when a launch waits though ranks have left.
    left: Mutex<Option<Instant>>,
}

/// How long a launch may take when a rank has left: it may be about to end, with all that it needs.
const LEFT_BEHIND: Duration = Duration::from_secs(1);

impl Watch {
    pub(super) fn new(direct: Direct, comm: WeakCommunicator, last: Arc<Mutex<LastStream>>) -> Watch {
        Watch {
            direct,
            comm,
            last,
            watched: AtomicBool::new(false),
            always: AtomicBool::new(false),
            left: Mutex::default(),
        }
    }

    /// A launch was put into a stream, or into a graph; whether the thread must be told to look.
    pub(super) fn begin(&self, is_captured: bool) -> bool {
        if is_captured {
            self.always.store(true, Ordering::Relaxed);
        }
        !self.watched.swap(true, Ordering::AcqRel)
    }

    /// What the first launch that failed says. The other ranks are told: this one may leave before the thread looks.
    pub(super) fn failure(&self) -> Option<Error> {
        let error = self.direct.failure()?;
        Some(match self.comm.upgrade() {
            Some(comm) => comm.failed(error),
            None => error,
        })
    }

    /// Looks once: whether to look again, or what has gone wrong. Then launches that wait are to be aborted, when that is known.
    pub(super) fn look(&self) -> Result<bool, Error> {
        let Some(comm) = self.comm.upgrade() else { return Ok(false) };
        let left = comm.look()?;
        if let Some(error) = self.failure() {
            return Err(error);
        }
        if self.always.load(Ordering::Relaxed) && left.is_empty() {
            return Ok(true);
        }
        // First the word, then the look: a launch after the look finds the word down.
        self.watched.store(false, Ordering::SeqCst);
        let is_over = self.last.lock().unwrap_or_else(PoisonError::into_inner).is_over();
        if is_over {
            return Ok(self.always.load(Ordering::Relaxed));
        }
        self.watched.store(true, Ordering::SeqCst);
        let mut since = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        match *since {
            _ if left.is_empty() => *since = None,
            Some(since) if since.elapsed() > LEFT_BEHIND => {
                let cause =
                    format!("ranks {left:?} have dropped their communicator while a call on the device needs them");
                return Err(comm.failed(Error::new(ErrorKind::PeerLeft, cause).blaming(left)));
            }
            Some(_) => {}
            None => *since = Some(Instant::now()),
        }
        Ok(true)
    }
}
