//! Where the threads of a process find each other.

use std::collections::HashMap;
use std::sync::{Condvar, LazyLock, Mutex};
use std::time::Instant;

use crate::control::Inbox;
use crate::doorbell::Doorbell;
use crate::segment::SharedSegment;

/// What a rank gives to another rank of its process.
#[derive(Clone)]
pub(crate) struct Offer {
    pub(crate) segment: SharedSegment,
    pub(crate) bell: Doorbell,
    /// The queue in which this rank wants to hear from the other.
    pub(crate) inbox: Inbox,
}

/// A meeting of two ranks of one group, in one direction: what `from` leaves for `to`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Meeting {
    pub(crate) job: [u8; 16],
    pub(crate) group: [u8; 16],
    pub(crate) from: usize,
    pub(crate) to: usize,
}

static PLACES: LazyLock<(Mutex<HashMap<Meeting, Offer>>, Condvar)> = LazyLock::new(Default::default);

/// Leaves an offer for the other rank to take.
pub(crate) fn leave(meeting: Meeting, mine: Offer) {
    let (left, changed) = &*PLACES;
    left.lock().expect("no panic while held").insert(meeting, mine);
    changed.notify_all();
}

/// Takes what the other rank has left, waiting for it until `deadline`.
pub(crate) fn take(meeting: Meeting, deadline: Instant) -> Option<Offer> {
    let (left, changed) = &*PLACES;
    let mut left = left.lock().expect("no panic while held");
    loop {
        if let Some(found) = left.remove(&meeting) {
            return Some(found);
        }
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return None;
        }
        left = changed.wait_timeout(left, remaining).expect("no panic while held").0;
    }
}

/// Takes back what nobody came for.
pub(crate) fn take_back(meeting: Meeting) {
    PLACES.0.lock().expect("no panic while held").remove(&meeting);
}
