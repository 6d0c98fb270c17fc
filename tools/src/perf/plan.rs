//! What a run is about, and what connects one rank with the others.

use std::time::Duration;

use super::arguments::Options;
use super::benchmark::Benchmark;
use super::comm::{Comm, CommError};
use super::environment::Environment;
use super::failure::Failure;
use super::names::{Operator, TypeName};
use super::report::Reporter;
use super::watchdog::Watchdog;

/// What a run is about; the same on every rank.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The test.
    pub benchmark: Benchmark,
    /// The command line.
    pub options: Options,
    /// The environment.
    pub environment: Environment,
}

/// A row's fixed part: one type, operator and root.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Series {
    /// The element type.
    pub type_name: TypeName,
    /// The operator, for reductions.
    pub operator: Option<Operator>,
    /// The root, for collectives that have one.
    pub root: Option<usize>,
}

/// What connects one rank with the others and with the outside.
pub struct Ends<'a, C> {
    /// The communicator.
    pub comm: &'a C,
    /// The process's watchdog.
    pub watchdog: &'a Watchdog,
    /// The limit of a test, on the one rank of each process that keeps the watchdog.
    pub limit: Option<Duration>,
    /// Set on rank 0.
    pub reporter: Option<&'a mut Reporter>,
}

impl<C: Comm> Ends<'_, C> {
    /// The failure of this rank's call.
    pub fn failure(&self, error: CommError) -> Failure {
        let rank = self.comm.rank();
        Failure::Communication { rank, host: self.comm.host(rank), error }
    }

    /// Does a part of a test, within the limit.
    ///
    /// # Errors
    ///
    /// Whatever the part reports.
    pub fn within_limit<T>(&self, part: impl FnOnce() -> Result<T, CommError>) -> Result<T, Failure> {
        if let Some(limit) = self.limit {
            self.watchdog.set(limit);
        }
        let done = part().map_err(|error| self.failure(error));
        if self.limit.is_some() {
            self.watchdog.lift();
        }
        done
    }
}
