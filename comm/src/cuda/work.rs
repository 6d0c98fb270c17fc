//! A call that a stream has been given.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use paceline_transport::cuda::{CudaError, Event, Stream};

use super::refused;
use super::watch::Watch;
use super::worker::Failure;
use crate::error::{Error, ErrorKind, Result};

/// How a call ended on the host.
pub(super) type Outcome = OnceLock<Result<()>>;

/// What tells how a call ended.
pub(super) enum Teller {
    /// The host had a part in it.
    Host(Arc<Outcome>),
    /// It ran on the device: the launches, and what ended them.
    Device(Arc<Watch>, Arc<Failure>),
}

impl Teller {
    fn error(&self) -> Option<Error> {
        match self {
            Teller::Host(outcome) => outcome.get().and_then(|result| result.clone().err()),
            Teller::Device(watch, failure) => failure.get().or_else(|| watch.failure()),
        }
    }
}

/// A call that a stream has been given. It runs whether this is kept or not.
pub struct DeviceWork {
    end: Arc<Event>,
    is_captured: bool,
    teller: Teller,
    timeout: Duration,
}

impl DeviceWork {
    pub(super) fn new(end: Arc<Event>, is_captured: bool, teller: Teller, timeout: Duration) -> DeviceWork {
        DeviceWork { end, is_captured, teller, timeout }
    }

    fn end(&self) -> Result<&Event> {
        if !self.is_captured {
            return Ok(&self.end);
        }
        Err(Error::invalid("the call was captured into a graph, and runs whenever that is launched")
            .hint("wait for the stream that the graph was launched in"))
    }

    /// The place in the stream behind the call, for other streams to wait for.
    #[must_use]
    pub fn event(&self) -> &Event {
        &self.end
    }

    /// Lets what `stream` is given from now on wait for the call.
    ///
    /// # Errors
    ///
    /// The device is lost, or the call was captured and the stream isn't.
    pub fn join(&self, stream: &Stream) -> Result<()> {
        stream.wait(&self.end).map_err(refused)
    }

    /// Whether the stream has done the call, well or not.
    ///
    /// # Errors
    ///
    /// The call was captured, or the device is lost.
    pub fn test(&self) -> Result<bool> {
        self.end()?.is_done().map_err(refused)
    }

    /// Waits until the stream has done the call, as long as the call's timeout.
    ///
    /// # Errors
    ///
    /// As the call over memory of the host; if the stream doesn't get that far; if the device is lost.
    pub fn wait(&self) -> Result<()> {
        self.wait_timeout(self.timeout)
    }

    /// As [`DeviceWork::wait`], for so long at most.
    ///
    /// # Errors
    ///
    /// As [`DeviceWork::wait`].
    pub fn wait_timeout(&self, timeout: Duration) -> Result<()> {
        let waited = self.end()?.synchronize(Instant::now() + timeout);
        match (self.teller.error(), waited) {
            (Some(error), _) => Err(error),
            (_, Ok(())) => Ok(()),
            (_, Err(CudaError::TimedOut { waited, .. })) => {
                let cause = format!("waited {waited:.1?} for the stream to do the call");
                let hint = "something before it in the stream still runs, or give wait_timeout more time";
                Err(Error::new(ErrorKind::Timeout, cause).hint(hint))
            }
            (_, Err(error)) => Err(refused(error)),
        }
    }
}

impl std::fmt::Debug for DeviceWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let way = match self.teller {
            Teller::Host(_) => "by the host",
            Teller::Device(..) => "on the device",
        };
        write!(f, "DeviceWork {{ {way}, captured: {}, error: {:?} }}", self.is_captured, self.teller.error())
    }
}
