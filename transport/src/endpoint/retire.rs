//! Links that a group has given back: the next group of the same ranks in the same order may use them again.
//!
//! Nothing is cleared. What a rank knows of its links (how many frames went each way, which turn its board is at) goes on
//! where the last group ended, and that is sound if nothing of its traffic is under way any more. Each rank alone can't know
//! that; so each makes a digest of what it has counted with each other rank, and where the digests of all ranks cancel out,
//! both ends of every link have counted the same.

use super::Endpoint;
use crate::link::{Link, LinkKind};
use crate::machine;

/// The most memory that a rank's segment has taken, for links to be kept.
const KEPT_BYTES_MAX: u64 = 4 << 20;

impl Endpoint {
    /// Leaves the group in order. What is left of this endpoint can do nothing; returned are its links, if another group may
    /// use them: they all go through memory, hold nothing unread, and have not taken much.
    pub fn retire(&mut self) -> Option<Endpoint> {
        let kept = self.process == std::process::id()
            && self.links.len() > 1
            && self.board.is_some()
            && self.links.iter_mut().flatten().all(|link| link.kind() == LinkKind::Shm && link.is_quiet())
            && self.segment.as_ref().is_some_and(|segment| segment.bytes_taken() <= KEPT_BYTES_MAX);
        if !kept || !self.links.iter_mut().flatten().all(Link::part) {
            return None;
        }
        let nothing = Endpoint {
            me: 0,
            links: Vec::new(),
            peers: self.peers.clone(),
            segment: None,
            board: None,
            waker: self.waker.clone(),
            poller: None,
            process: self.process,
            stirred: Vec::new(),
            coalesces: false,
        };
        Some(std::mem::replace(self, nothing))
    }

    /// What this rank has counted with all others: the digests of all ranks, taken together by exclusive or, are zero if both
    /// ends of every link have counted the same.
    #[must_use]
    pub fn digest(&mut self) -> u64 {
        let (me, board) =
            (self.me as u64, self.board.as_ref().map_or((0, 0), |board| (board.turn(), board.exchange())));
        let mut digest = 0;
        for (peer, link) in self.links.iter_mut().enumerate() {
            let Some((sent, received)) = link.as_mut().and_then(|link| Some(link.ring()?.counts())) else { continue };
            let peer = peer as u64;
            let pair = if me < peer { [me, peer, sent, received] } else { [peer, me, received, sent] };
            digest ^= pair.into_iter().chain([board.0, board.1]).fold(SEED, machine::mix);
        }
        digest
    }

    /// Begins anew with links that every rank of the group has [given back](Endpoint::retire), as each has said.
    pub fn revive(&mut self) {
        self.links.iter_mut().flatten().for_each(Link::meet_again);
        self.stirred.fill(true);
        self.awake();
    }
}

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
