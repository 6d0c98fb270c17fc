//! What a rank knows that reports on failures need: where everybody runs, what peers have said, and what has ended here.

use std::collections::VecDeque;
use std::sync::Arc;

use paceline_transport::{Peer, Stamp};

use super::notice::Status;
use super::stamp::Fingerprint;
use crate::error::{CallName, Error, Report};

/// How many ended collectives are remembered, to explain a late frame.
const REMEMBERED: usize = 16;

/// What is known of a peer beside its data.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerState {
    pub(crate) left: bool,
    /// Its answer to the query of the call whose deadline is near.
    pub(crate) status: Option<Status>,
    /// Why it leaves.
    pub(crate) farewell: Option<Report>,
}

/// A collective that has ended here.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) call: CallName,
    pub(crate) stamp: Stamp,
}

impl Ended {
    /// What it was.
    pub(crate) fn fingerprint(&self) -> Option<Fingerprint> {
        Fingerprint::unpack(self.stamp)
    }
}

/// One rank's knowledge.
#[derive(Debug)]
pub(crate) struct Witness {
    pub(crate) me: usize,
    /// Where each rank runs.
    pub(crate) places: Arc<[Peer]>,
    /// The numbers of the ranks in the world, of which this communicator may be a part.
    pub(crate) members: Arc<[usize]>,
    pub(crate) peers: Vec<PeerState>,
    /// The last collectives that ended here, oldest first.
    pub(crate) ended: VecDeque<Ended>,
}

impl Witness {
    pub(crate) fn new(me: usize, places: Arc<[Peer]>) -> Witness {
        let (peers, members) = (vec![PeerState::default(); places.len()], (0..places.len()).collect());
        Witness { me, places, members, peers, ended: VecDeque::with_capacity(REMEMBERED) }
    }

    /// Notes that a collective has ended here.
    #[inline]
    pub(crate) fn remember(&mut self, call: CallName, stamp: Stamp) {
        if self.ended.len() == REMEMBERED {
            self.ended.pop_front();
        }
        self.ended.push_back(Ended { call, stamp });
    }

    /// How a rank is named in a report: by number, also in the world if that is another one, and where it runs. A report may
    /// reach ranks that are in no communicator with it, as the reason why others leave.
    pub(crate) fn name(&self, rank: usize) -> String {
        match self.members[rank] {
            same if same == rank => format!("rank {rank} ({})", self.places[rank]),
            world => format!("rank {rank} (rank {world} of the world, {})", self.places[rank]),
        }
    }

    /// What a rank that has answered is in.
    pub(crate) fn whereabouts(&self, rank: usize) -> String {
        let status = self.peers[rank].status.as_ref();
        let Some((status, call)) = status.and_then(|status| Some((status, status.current.as_ref()?))) else {
            return "no call".into();
        };
        match &status.beside {
            None => call.to_string(),
            Some(outside) if outside.is_empty() => format!("{call} of another communicator"),
            Some(outside) => {
                format!("{call} of another communicator, where it waits for ranks {outside:?} of the world")
            }
        }
    }

    /// An error that blamed ranks of which some only wait for others, with those others blamed.
    pub(crate) fn shift_blame(&self, error: &Error, silent: Vec<usize>) -> Error {
        let names: Vec<String> = silent.iter().map(|rank| self.name(*rank)).collect();
        let mut report = error.report().clone();
        let waiting: Vec<String> =
            error.peers().iter().filter(|rank| !silent.contains(rank)).map(usize::to_string).collect();
        let cause = format!(
            "; of these, rank {} answers and only waits for others; to blame is {}, which doesn't answer",
            waiting.join(", "),
            names.join(", ")
        );
        report.cause.push_str(&cause);
        report.peers = silent;
        Error::from_report(report)
    }
}
