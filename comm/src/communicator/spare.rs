//! Links that the last communicator to be dropped has left, for the next one of the same ranks.

use std::sync::{Arc, Mutex};

use paceline_transport::{Endpoint, GroupId};

use crate::select::Facts;

/// What a dropped communicator has left at this rank.
pub(super) struct Spare {
    /// Which group it was.
    pub(super) group: GroupId,
    /// Each of its ranks' number in the world.
    pub(super) members: Arc<[usize]>,
    pub(super) endpoint: Endpoint,
    pub(super) facts: Facts,
}

impl Spare {
    /// What a rank says of its spare in a split: which group's it is, and the links' digest.
    pub(super) fn said(spare: Option<&mut Spare>) -> [u64; 3] {
        let Some(spare) = spare else { return [0; 3] };
        let id = u128::from_le_bytes(spare.group.0);
        [id as u64, (id >> 64) as u64, spare.endpoint.digest()]
    }

    /// Whether the ranks that have said this can use their spares for the group `members`: all have the same group's, and both
    /// ends of every link have counted the same.
    pub(super) fn suits(&self, members: &[usize], said: impl Iterator<Item = [u64; 3]>) -> bool {
        let id = u128::from_le_bytes(self.group.0);
        let (mut same, mut digest) = (*members == *self.members, 0);
        for [low, high, counted] in said {
            same &= (low, high) == (id as u64, (id >> 64) as u64);
            digest ^= counted;
        }
        same && digest == 0
    }
}

/// Room for one spare, which all communicators of a rank share.
#[derive(Clone, Default)]
pub(super) struct Spares {
    spare: Arc<Mutex<Option<Spare>>>,
}

impl Spares {
    /// Keeps a spare, instead of the one that was there.
    pub(super) fn keep(&self, spare: Option<Spare>) {
        let Some(spare) = spare else { return };
        let before = self.spare.lock().expect("no panic while held").replace(spare);
        drop(before);
    }

    pub(super) fn take(&self) -> Option<Spare> {
        self.spare.lock().expect("no panic while held").take()
    }
}
