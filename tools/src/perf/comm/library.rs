//! The library's communicator, as the tools see it.

use std::time::Duration;

use paceline_comm::{CallOptions, Communicator, Error, ErrorKind, Request};

use super::{Comm, CommError};
use crate::perf::arguments::Options;
use crate::perf::buffers::Memory;
use crate::perf::failure::Failure;

/// What a call may take beyond the limit of a test, so that the test's own limit is always the first to pass.
const BEYOND_LIMIT: Duration = Duration::from_secs(10);

/// Joins the other ranks, if there are others, and returns this process's, in rank order.
///
/// # Errors
///
/// The ranks don't come together.
pub fn join(options: &Options) -> Result<Vec<Communicator>, Failure> {
    let comms = Communicator::from_env_threads(options.ranks()).map_err(|error| Failure::Start(error.to_string()))?;
    let Some(limit) = options.timeout else { return Ok(comms) };
    let timeout = Some(limit + BEYOND_LIMIT);
    Ok(comms.iter().map(|comm| comm.with(CallOptions { timeout, ..CallOptions::default() })).collect())
}

impl Comm for Communicator {
    fn rank(&self) -> usize {
        Communicator::rank(self)
    }

    fn size(&self) -> usize {
        Communicator::size(self)
    }

    fn local_rank(&self) -> usize {
        Communicator::local_rank(self)
    }

    fn local_size(&self) -> usize {
        Communicator::local_size(self)
    }

    fn host(&self, rank: usize) -> String {
        self.peer(rank).host.clone()
    }

    fn pid(&self, rank: usize) -> u32 {
        self.peer(rank).pid
    }

    fn link(&self, peer: usize) -> &'static str {
        self.link_kind(peer).map_or("self", |kind| kind.name())
    }

    fn alloc(&self, bytes: usize) -> Result<Memory, CommError> {
        let buffer = Communicator::alloc::<u8>(self, bytes).map_err(failed)?;
        Ok(Box::new(buffer))
    }

    fn run(&self, request: Request<'_>) -> Result<(), CommError> {
        Communicator::run(self, request).map_err(failed)
    }

    fn run_group(&self, requests: Vec<Request<'_>>) -> Result<(), CommError> {
        let mut group = self.group();
        for request in requests {
            group.add(request);
        }
        group.run().map_err(failed)
    }

    fn barrier(&self) -> Result<(), CommError> {
        Communicator::barrier(self).map_err(failed)
    }

    fn abort(&self, reason: &str) {
        Communicator::abort(self, reason);
    }
}

#[cold]
pub(super) fn failed(error: Error) -> CommError {
    match error.kind() {
        ErrorKind::Aborted | ErrorKind::PeerLeft => CommError::Follows(error.to_string()),
        _ => CommError::Failed(error.to_string()),
    }
}
