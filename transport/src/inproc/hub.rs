//! Where the threads of a process find each other.

use std::any::Any;
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
    /// 0 when they join; the number of the shared memory later.
    pub(crate) number: u64,
}

type Left = HashMap<Meeting, Box<dyn Any + Send>>;

static PLACES: LazyLock<(Mutex<Left>, Condvar)> = LazyLock::new(Default::default);

/// Leaves something for the other rank to take.
pub(crate) fn leave<T: Send + 'static>(meeting: Meeting, mine: T) {
    let (left, changed) = &*PLACES;
    left.lock().expect("no panic while held").insert(meeting, Box::new(mine));
    changed.notify_all();
}

/// Takes what the other rank has left, waiting for it until `deadline`.
pub(crate) fn take<T: 'static>(meeting: Meeting, deadline: Instant) -> Option<T> {
    let (left, changed) = &*PLACES;
    let mut left = left.lock().expect("no panic while held");
    loop {
        if let Some(found) = left.remove(&meeting) {
            return Some(*found.downcast().expect("both ranks of a meeting mean the same"));
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
