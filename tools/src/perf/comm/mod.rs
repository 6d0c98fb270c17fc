//! What the tools need of a communicator, so that they can be tested with one that makes mistakes.

#[cfg(feature = "cuda")]
pub mod device;
#[cfg(test)]
pub mod fake;
pub mod library;

use paceline_comm::Request;

use super::buffers::Memory;

/// One rank's end of a communicator.
pub trait Comm: Send + Sync + 'static {
    /// This rank's number.
    fn rank(&self) -> usize;
    /// How many ranks there are.
    fn size(&self) -> usize;
    /// This rank's number among those of its host.
    fn local_rank(&self) -> usize;
    /// How many ranks this host has.
    fn local_size(&self) -> usize;
    /// The host of a rank.
    fn host(&self, rank: usize) -> String;
    /// The process of a rank.
    fn pid(&self, rank: usize) -> u32;
    /// What joins this rank to a peer: `inproc`, `shm`, `tcp`, or `self`.
    fn link(&self, peer: usize) -> &'static str;

    /// Runs a call, in this thread, to its end on this rank.
    ///
    /// # Errors
    ///
    /// Whatever the library reports.
    fn run(&self, request: Request<'_>) -> Result<(), CommError>;

    /// Runs several calls at the same time, to the end of all of them.
    ///
    /// # Errors
    ///
    /// Whatever the library reports.
    fn run_group(&self, requests: Vec<Request<'_>>) -> Result<(), CommError>;

    /// Waits until every rank has come here.
    ///
    /// # Errors
    ///
    /// Whatever the library reports.
    fn barrier(&self) -> Result<(), CommError>;

    /// Zeroed memory of the library's own (`-R 1`), or with a twin on the rank's device. Every rank calls it.
    ///
    /// # Errors
    ///
    /// Whatever the library reports.
    fn alloc(&self, bytes: usize) -> Result<Memory, CommError>;

    /// Whether calls work on twins of the buffers, on a device, and go on after they return: [`Comm::finish`] waits for them.
    fn has_device(&self) -> bool {
        false
    }

    /// The rank's device: its number, and what it is; of ranks without one, nothing.
    fn device(&self) -> Option<(usize, String)> {
        None
    }

    /// Waits until the calls of this rank that were made are over.
    ///
    /// # Errors
    ///
    /// Whatever the library reports.
    fn finish(&self) -> Result<(), CommError> {
        Ok(())
    }

    /// Makes the twin of a buffer what the buffer is.
    ///
    /// # Errors
    ///
    /// Whatever the library reports.
    fn upload(&self, _buffer: &[u8]) -> Result<(), CommError> {
        Ok(())
    }

    /// Makes a buffer what its twin is, when the calls made are over.
    ///
    /// # Errors
    ///
    /// Whatever the library reports.
    fn download(&self, _buffer: &mut [u8]) -> Result<(), CommError> {
        Ok(())
    }

    /// Copies from one buffer to another, in order with the calls.
    ///
    /// # Errors
    ///
    /// Whatever the library reports.
    fn copy(&self, from: &[u8], to: &mut [u8]) -> Result<(), CommError> {
        to.copy_from_slice(from);
        Ok(())
    }

    /// Records the calls that `calls` makes instead of making them, for [`Replay`] to make them all at once.
    ///
    /// # Errors
    ///
    /// There is nothing to record them with; or whatever `calls` or the library reports.
    fn record<'a>(&'a self, _calls: &mut dyn FnMut() -> Result<(), CommError>) -> Result<Replay<'a>, CommError> {
        Err(CommError::Failed("only calls over memory of a device can be recorded (-G)".to_owned()))
    }

    /// Makes every call on every rank, under way or to come, fail. Does not wait.
    fn abort(&self, reason: &str);
}

/// Makes recorded calls.
pub type Replay<'a> = Box<dyn FnMut() -> Result<(), CommError> + 'a>;

/// Why a call failed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum CommError {
    /// It was aborted, here or elsewhere, or a peer went away: the cause is another rank's error.
    #[error("{0}")]
    Follows(String),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}
