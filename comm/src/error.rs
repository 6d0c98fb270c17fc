//! What went wrong: a report that names the call, the step, the peer, the cause and what to try.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::collective::Collective;

/// The result of a call on a communicator.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of thing went wrong. Only [`ErrorKind::InvalidArgument`] leaves the communicator usable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call can't be meant as it stands: a buffer too short, a root out of range. Nothing was sent.
    InvalidArgument,
    /// Ranks called different things.
    Mismatch,
    /// A deadline passed.
    Timeout,
    /// A rank's process is gone.
    PeerDied,
    /// A rank dropped its communicator while others still needed it.
    PeerLeft,
    /// Somebody called `abort`.
    Aborted,
    /// The ranks did not find each other.
    Rendezvous,
    /// The operating system refused something.
    System,
    /// A bug in paceline, or memory corrupted by something else.
    Internal,
}

impl ErrorKind {
    /// The kind in a word or two.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::InvalidArgument => "invalid argument",
            ErrorKind::Mismatch => "mismatch",
            ErrorKind::Timeout => "timeout",
            ErrorKind::PeerDied => "peer died",
            ErrorKind::PeerLeft => "peer left",
            ErrorKind::Aborted => "aborted",
            ErrorKind::Rendezvous => "rendezvous",
            ErrorKind::System => "system",
            ErrorKind::Internal => "internal",
        }
    }
}

/// Which call a report is about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CallName {
    /// The collective.
    pub collective: Collective,
    /// Its number in the communicator, from 1; of messages, their number between the two ranks.
    pub sequence: u64,
    /// The algorithm's row.
    pub algorithm: Cow<'static, str>,
    /// How many ranks the communicator has.
    pub size: usize,
}

impl std::fmt::Display for CallName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} #{} ({}, n = {})", self.collective, self.sequence, self.algorithm, self.size)
    }
}

/// The whole report, as it also travels to the other ranks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) kind: ErrorKind,
    pub(crate) call: Option<CallName>,
    pub(crate) round: Option<usize>,
    pub(crate) step: Option<usize>,
    pub(crate) peers: Vec<usize>,
    pub(crate) cause: String,
    pub(crate) hint: Option<String>,
    pub(crate) reporter: Option<usize>,
}

/// An error of a communicator.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    report: Box<Report>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, cause: impl Into<String>) -> Error {
        let report = Report {
            kind,
            call: None,
            round: None,
            step: None,
            peers: Vec::new(),
            cause: cause.into(),
            hint: None,
            reporter: None,
        };
        Error { report: Box::new(report) }
    }

    pub(crate) fn from_report(report: Report) -> Error {
        Error { report: Box::new(report) }
    }

    /// The error of a call on a communicator that has failed before, for the reason of this error.
    pub(crate) fn repeated(&self) -> Error {
        let mut error = Error::new(self.kind(), format!("this communicator has failed: {self}"));
        error.report.peers = self.report.peers.clone();
        error.report.reporter = self.report.reporter;
        error
    }

    pub(crate) fn report(&self) -> &Report {
        &self.report
    }

    pub(crate) fn invalid(cause: impl Into<String>) -> Error {
        Error::new(ErrorKind::InvalidArgument, cause)
    }

    #[must_use]
    pub(crate) fn during(mut self, call: CallName) -> Error {
        self.report.call.get_or_insert(call);
        self
    }

    #[must_use]
    pub(crate) fn at(mut self, round: usize, step: usize) -> Error {
        (self.report.round, self.report.step) = (Some(round), Some(step));
        self
    }

    #[must_use]
    pub(crate) fn blaming(mut self, peers: impl IntoIterator<Item = usize>) -> Error {
        self.report.peers = peers.into_iter().collect();
        self
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Error {
        self.report.hint = Some(hint.into());
        self
    }

    /// What kind of thing went wrong.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.report.kind
    }

    /// The call that failed, if one was under way.
    #[must_use]
    pub fn call(&self) -> Option<&CallName> {
        self.report.call.as_ref()
    }

    /// The round of the schedule in which it failed, from 0.
    #[must_use]
    pub fn round(&self) -> Option<usize> {
        self.report.round
    }

    /// The step of the round, from 0.
    #[must_use]
    pub fn step(&self) -> Option<usize> {
        self.report.step
    }

    /// The ranks to look at first: dead, late, or of another opinion.
    #[must_use]
    pub fn peers(&self) -> &[usize] {
        &self.report.peers
    }

    /// What happened, without the call and the hint.
    #[must_use]
    pub fn cause(&self) -> &str {
        &self.report.cause
    }

    /// What to try.
    #[must_use]
    pub fn what_to_try(&self) -> Option<&str> {
        self.report.hint.as_deref()
    }

    /// The rank that found out, if it was another one.
    #[must_use]
    pub fn reporter(&self) -> Option<usize> {
        self.report.reporter
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { kind, call, cause, hint, reporter, .. } = &*self.report;
        match call {
            Some(call) => write!(f, "{call}: {cause}")?,
            None => write!(f, "{}: {cause}", kind.name())?,
        }
        if let Some(rank) = reporter {
            write!(f, " (found by rank {rank})")?;
        }
        if let Some(hint) = hint {
            write!(f, "; {hint}")?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} [{}]", self, self.kind().name())
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Error::new(ErrorKind::System, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_like_a_report() {
        let call = CallName { collective: Collective::AllReduce, sequence: 412, algorithm: "ring".into(), size: 16 };
        let error = Error::new(ErrorKind::PeerDied, "lost rank 2 in round 7: connection reset")
            .during(call)
            .at(7, 0)
            .blaming([2])
            .hint("look at rank 2's output");
        let want = "all_reduce #412 (ring, n = 16): lost rank 2 in round 7: connection reset; look at rank 2's output";
        assert_eq!(error.to_string(), want);
        assert_eq!((error.round(), error.peers()), (Some(7), &[2][..]));
    }
}
