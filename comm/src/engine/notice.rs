//! What engines tell each other apart from the data: failures, and who waits for whom.

use serde::{Deserialize, Serialize};

use crate::error::{CallName, Report};

/// A message on the control path.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Notice {
    /// The sender's communicator has failed, for this reason.
    Fault(Report),
    /// The sender leaves, because another of its communicators has failed for this reason.
    Farewell(Report),
    /// The sender waits, in this collective if it is one: what is the receiver doing?
    Query(Option<Said>),
    /// The answer.
    Status(Status),
}

/// A collective, as a rank believes it to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Said {
    pub(crate) sequence: u64,
    /// The words of its stamp.
    pub(crate) stamp: [u64; 2],
}

/// What a rank is doing.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Status {
    /// The call it is in, if any.
    pub(crate) current: Option<CallName>,
    /// The collective's number it ended last.
    pub(crate) ended: u64,
    /// The ranks it waits for.
    pub(crate) waits_for: Vec<usize>,
    /// Set if the call is one of another communicator: the ranks it waits for that are not in this one, by their numbers in
    /// the world.
    pub(crate) beside: Option<Vec<usize>>,
    /// What is wrong with its way to a rank that it waits for, or to the one that asks.
    pub(crate) trouble: Option<String>,
}

impl Notice {
    /// The notice in bytes; texts too long for the control path are cut.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut notice = self.clone();
        if let Notice::Fault(report) | Notice::Farewell(report) = &mut notice {
            cut(&mut report.cause);
            report.peers.truncate(PEERS_MAX);
            if let Some(hint) = &mut report.hint {
                cut(hint);
            }
        }
        if let Notice::Status(status) = &mut notice {
            status.waits_for.truncate(PEERS_MAX);
            status.beside.iter_mut().for_each(|ranks| ranks.truncate(PEERS_MAX));
            status.trouble.iter_mut().for_each(cut);
        }
        postcard::to_allocvec(&notice).expect("plain data")
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Notice> {
        postcard::from_bytes(bytes).ok()
    }
}

const TEXT_BYTES_MAX: usize = 4096;
const PEERS_MAX: usize = 256;

fn cut(text: &mut String) {
    if text.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, ErrorKind};

    #[test]
    fn notices_survive_the_wire_and_fit() {
        let report = Error::new(ErrorKind::Timeout, "ä".repeat(9000)).blaming(0..9000).report().clone();
        let bytes = Notice::Fault(report).encode();
        assert!(bytes.len() < paceline_transport::control::NOTICE_BYTES_MAX);
        assert!(matches!(Notice::decode(&bytes), Some(Notice::Fault(report)) if report.kind == ErrorKind::Timeout));
        assert_eq!(Notice::decode(&[0xff, 1, 2]), None);
    }
}
