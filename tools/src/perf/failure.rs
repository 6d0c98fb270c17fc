//! Why a run ends early, and the exit codes, which are nccl-tests'.

use super::comm::CommError;

/// How a failure says that a test took too long, as nccl-tests says it.
const TIMEOUT: &str = ": Test timeout ";

/// Why a run ends early.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Failure {
    /// Something that should not happen: a panic, a file that cannot be written.
    #[error("{0}")]
    Internal(String),
    /// A collective failed.
    #[error("rank {rank} on {host}: {error}")]
    Communication {
        /// The rank whose call failed.
        rank: usize,
        /// Its host.
        host: String,
        /// What the library said.
        error: CommError,
    },
    /// The ranks never came together.
    #[error("cannot start: {0}")]
    Start(String),
    /// A test took longer than `-T` allows.
    #[error("{host}{TIMEOUT}({seconds}s) {test}")]
    Timeout {
        /// The host that noticed.
        host: String,
        /// The limit.
        seconds: u64,
        /// What was being measured.
        test: String,
    },
    /// What is asked for exists, but not in this build.
    #[error("{0}")]
    NotInThisBuild(String),
    /// A command line that means nothing.
    #[error("{0}")]
    Usage(String),
    /// Sizes that mean nothing.
    #[error("{0}")]
    Sizes(String),
}

/// The exit code of a run that measured everything and found all results right.
pub const RIGHT: u8 = 0;
/// The exit code of a run with wrong results, or less bandwidth than was demanded.
pub const WRONG: u8 = 7;

impl Failure {
    /// The exit code: 1 internal, 3 communication, 4 timeout, 5 not implemented, 6 usage, 255 bad sizes.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Internal(_) => 1,
            // Whoever sees it first, the test took too long for all ranks.
            Failure::Communication { error: CommError::Follows(why), .. } if why.contains(TIMEOUT) => 4,
            Failure::Communication { .. } | Failure::Start(_) => 3,
            Failure::Timeout { .. } => 4,
            Failure::NotInThisBuild(_) => 5,
            Failure::Usage(_) => 6,
            Failure::Sizes(_) => 255,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_took_too_long_ends_all_ranks_alike() {
        let timeout = Failure::Timeout { host: "b".into(), seconds: 5, test: "all_reduce_perf".into() };
        let told = |why: String| Failure::Communication { rank: 2, host: "a".into(), error: CommError::Follows(why) };
        assert_eq!((timeout.exit_code(), told(timeout.to_string()).exit_code()), (4, 4));
        assert_eq!(told("rank 1 is gone".into()).exit_code(), 3);
    }
}
