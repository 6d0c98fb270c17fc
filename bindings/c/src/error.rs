//! What goes wrong, as C is told: a number, a text, and the ranks to look at.

#![forbid(unsafe_code)]

use std::ffi::c_int;

use paceline_comm::{Error, ErrorKind};

/// `pclResult_t`.
#[allow(non_camel_case_types, reason = "the name in C")]
pub type pclResult = c_int;

pub(crate) const SUCCESS: pclResult = 0;
#[cfg(feature = "cuda")]
pub(crate) const UNHANDLED_CUDA_ERROR: pclResult = 1;
pub(crate) const SYSTEM_ERROR: pclResult = 2;
pub(crate) const INTERNAL_ERROR: pclResult = 3;
pub(crate) const INVALID_ARGUMENT: pclResult = 4;
pub(crate) const INVALID_USAGE: pclResult = 5;
pub(crate) const REMOTE_ERROR: pclResult = 6;
pub(crate) const IN_PROGRESS: pclResult = 7;
pub(crate) const TIMEOUT: pclResult = 8;
pub(crate) const MISMATCH: pclResult = 9;
pub(crate) const ABORTED: pclResult = 10;
pub(crate) const RENDEZVOUS_ERROR: pclResult = 11;

/// What each result means; the text ends in the 0 that C needs.
pub(crate) const WORDS: [&str; 12] = [
    "success\0",
    "the CUDA driver refused something\0",
    "the operating system refused something\0",
    "internal error: a bug in paceline, or memory corrupted by something else\0",
    "invalid argument\0",
    "invalid usage: the call can't be made now or in this build\0",
    "remote error: a rank's process is gone, or it has left\0",
    "in progress: not ended yet\0",
    "timeout: a rank did not come in time\0",
    "mismatch: ranks called different things\0",
    "aborted\0",
    "rendezvous: the ranks did not find each other\0",
];

/// An error on its way to C.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: pclResult,
    pub(crate) text: String,
    pub(crate) peers: Vec<usize>,
}

impl Failure {
    pub(crate) fn new(code: pclResult, text: impl Into<String>) -> Failure {
        Failure { code, text: text.into(), peers: Vec::new() }
    }

    #[cold]
    pub(crate) fn argument(text: impl Into<String>) -> Failure {
        Failure::new(INVALID_ARGUMENT, text)
    }

    #[cold]
    pub(crate) fn usage(text: impl Into<String>) -> Failure {
        Failure::new(INVALID_USAGE, text)
    }
}

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Failure {
        Failure { code: code(error.kind()), text: error.to_string(), peers: error.peers().to_vec() }
    }
}

fn code(kind: ErrorKind) -> pclResult {
    match kind {
        ErrorKind::InvalidArgument => INVALID_ARGUMENT,
        ErrorKind::Mismatch => MISMATCH,
        ErrorKind::Timeout => TIMEOUT,
        ErrorKind::PeerDied | ErrorKind::PeerLeft => REMOTE_ERROR,
        ErrorKind::Aborted => ABORTED,
        ErrorKind::Rendezvous => RENDEZVOUS_ERROR,
        ErrorKind::System => SYSTEM_ERROR,
        _ => INTERNAL_ERROR,
    }
}
