//! What the tools need of a communicator, so that they can be tested without one.

#[cfg(test)]
pub mod fake;
pub mod library;

use std::time::Duration;

use paceline_comm::collective::Collective;
use paceline_comm::reduce::{DataType, ReduceOp};

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
    fn link(&self, peer: usize) -> String;

    /// Runs a collective, in this thread, to its end on this rank.
    ///
    /// # Errors
    ///
    /// Whatever the library reports.
    fn run(&self, request: Request<'_>) -> Result<(), CommError>;

    /// Sends to one peer and receives from another at the same time.
    ///
    /// # Errors
    ///
    /// Whatever the library reports.
    fn exchange(&self, exchange: Exchange<'_>) -> Result<(), CommError>;

    /// Waits until every rank has come here.
    ///
    /// # Errors
    ///
    /// Whatever the library reports.
    fn barrier(&self) -> Result<(), CommError>;

    /// Makes every call on every rank, under way or to come, fail. Does not wait.
    fn abort(&self, reason: &str);
}

/// A collective with everything it needs.
#[derive(Debug)]
pub struct Request<'a> {
    /// Which one.
    pub collective: Collective,
    /// What the elements are.
    pub data_type: DataType,
    /// How they are combined, if they are.
    pub op: ReduceOp,
    /// The root, if there is one.
    pub root: usize,
    /// Elements: NCCL's count argument.
    pub count: usize,
    /// Where the data is.
    pub buffers: Buffers<'a>,
    /// Counts that differ by peer.
    pub counts: Option<Counts<'a>>,
}

/// A call's buffers.
#[derive(Debug)]
pub enum Buffers<'a> {
    /// Two.
    Separate {
        /// What the rank brings.
        input: &'a [u8],
        /// What it ends up with.
        output: &'a mut [u8],
    },
    /// One, as large as the larger of the two would be; the smaller one is this rank's block of it.
    InPlace(&'a mut [u8]),
}

/// How many elements go to and come from each peer, and where they lie.
#[derive(Clone, Copy, Debug)]
pub struct Counts<'a> {
    /// Elements for each peer.
    pub send_counts: &'a [usize],
    /// Where they begin in the input.
    pub send_offsets: &'a [usize],
    /// Elements from each peer.
    pub recv_counts: &'a [usize],
    /// Where they begin in the output.
    pub recv_offsets: &'a [usize],
}

/// A message out and a message in.
#[derive(Debug)]
pub struct Exchange<'a> {
    /// The receiver of the message out.
    pub to: usize,
    /// The sender of the message in.
    pub from: usize,
    /// What the elements are.
    pub data_type: DataType,
    /// The two messages. In place, the message in replaces the message out.
    pub buffers: Buffers<'a>,
}

/// Why a call failed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum CommError {
    /// It was aborted, here or elsewhere: the cause is another error.
    #[error("aborted: {0}")]
    Aborted(String),
    /// It did not end in time.
    #[error("{text}")]
    TimedOut {
        /// What the library says.
        text: String,
        /// How long it waited.
        waited: Duration,
    },
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}
