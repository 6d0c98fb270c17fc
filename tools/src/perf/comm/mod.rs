//! What the tools need of a communicator, so that they can be tested with one that makes mistakes.

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

    /// Zeroed memory of the library's own (`-R 1`). Every rank calls it.
    ///
    /// # Errors
    ///
    /// Whatever the library reports.
    fn alloc(&self, bytes: usize) -> Result<Memory, CommError>;

    /// Makes every call on every rank, under way or to come, fail. Does not wait.
    fn abort(&self, reason: &str);
}

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
