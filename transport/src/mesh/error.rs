//! Why a group of ranks could not be joined.

use std::time::Duration;

use crate::machine;
use crate::rendezvous::RendezvousError;

/// Why a group of ranks could not be joined.
#[derive(Debug, thiserror::Error)]
pub enum MeshError {
    /// The ranks did not meet.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    /// This rank can't be called.
    #[error("this rank can't be called by others: {0}")]
    Listen(String),
    /// No link of the only kinds that are allowed can be had here.
    #[error("no link of an allowed kind can be had: {0}")]
    Links(String),
    /// A rank did not call, or did not answer.
    #[error("joining rank {peer} ({who}): {problem}")]
    Peer {
        /// The rank.
        peer: usize,
        /// Where it runs.
        who: String,
        /// What happened.
        problem: String,
    },
    /// A rank can't join, as it says itself.
    #[error("joining rank {peer} ({who}), which can't: {how}")]
    Refused {
        /// The rank.
        peer: usize,
        /// Where it runs.
        who: String,
        /// Whom it blames; nobody but itself if empty.
        blamed: Vec<usize>,
        /// Why it can't.
        how: String,
    },
    /// Ranks that did not call by the deadline.
    #[error("no call within {:.1} s from {}: stopped, or very busy", .waited.as_secs_f64(), list(.missing))]
    Missing {
        /// Who did not, and where they run.
        missing: Vec<(usize, String)>,
        /// How long this rank waited.
        waited: Duration,
    },
    /// This rank can't open as many files as joining takes.
    #[error("joining {size} ranks: {problem}")]
    Files {
        /// How many ranks there are.
        size: usize,
        /// What is in the way, and what to do.
        problem: String,
    },
    /// The operating system refused something.
    #[error("{what}: {error}{}", hint(.error))]
    System {
        /// What was being done.
        what: &'static str,
        /// Its answer.
        error: std::io::Error,
    },
}

impl MeshError {
    /// The ranks to look at.
    #[must_use]
    pub fn peers(&self) -> Vec<usize> {
        match self {
            MeshError::Peer { peer, .. } => vec![*peer],
            MeshError::Missing { missing, .. } => missing.iter().map(|(rank, _)| *rank).collect(),
            MeshError::Refused { peer, blamed, .. } if blamed.is_empty() => vec![*peer],
            MeshError::Refused { blamed, .. } => blamed.clone(),
            MeshError::Rendezvous(error) => error.peers(),
            MeshError::Listen(_) | MeshError::Links(_) | MeshError::Files { .. } | MeshError::System { .. } => {
                Vec::new()
            }
        }
    }

    /// What several failures come to: the first is the cause of the others, but ranks that are missing are missing
    /// together.
    pub(super) fn of_several(failures: impl IntoIterator<Item = MeshError>) -> Option<MeshError> {
        let mut failures = failures.into_iter();
        let mut first = failures.next()?;
        if let MeshError::Missing { missing, .. } = &mut first {
            for other in failures {
                if let MeshError::Missing { missing: more, .. } = other {
                    missing.extend(more);
                }
            }
            missing.sort_unstable();
        }
        Some(first)
    }
}

fn list(ranks: &[(usize, String)]) -> String {
    ranks.iter().map(|(rank, who)| format!("rank {rank} ({who})")).collect::<Vec<_>>().join(", ")
}

fn hint(error: &std::io::Error) -> &'static str {
    match error.raw_os_error() == Some(rustix::io::Errno::NOMEM.raw_os_error()) {
        true => "; there is no memory for the shared segment",
        false => machine::files_hint(error),
    }
}
