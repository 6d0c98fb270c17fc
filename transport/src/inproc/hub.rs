//! Where the threads of a process find each other.

use std::collections::HashMap;
use std::sync::{Condvar, LazyLock, Mutex};
use std::time::Instant;

use crate::control::QueueControl;
use crate::doorbell::Doorbell;
use crate::segment::SharedSegment;

/// What a rank gives to another rank of its process.
#[derive(Clone)]
pub(crate) struct Offer {
    pub(crate) segment: SharedSegment,
    pub(crate) bell: Doorbell,
}

/// A meeting of two ranks: of one group, known by its identity, the lower rank first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Meeting {
    pub(crate) group: [u8; 16],
    pub(crate) lower: usize,
    pub(crate) upper: usize,
}

enum Place {
    /// The first to come has left its offer.
    First(Offer),
    /// The second has come too, and has left its offer and the first one's end of the control path.
    Both(Offer, QueueControl),
}

static PLACES: LazyLock<(Mutex<HashMap<Meeting, Place>>, Condvar)> = LazyLock::new(Default::default);

/// Exchanges offers with the other rank of a meeting, waiting for it until `deadline`; `None` if it doesn't come.
pub(crate) fn meet(meeting: Meeting, mine: Offer, deadline: Instant) -> Option<(Offer, QueueControl)> {
    let (places, changed) = &*PLACES;
    let mut places = places.lock().expect("no panic while held");
    if let Some(Place::First(theirs)) = places.remove(&meeting) {
        let (my_end, their_end) = QueueControl::pair(mine.bell.clone(), theirs.bell.clone());
        places.insert(meeting, Place::Both(mine, their_end));
        changed.notify_all();
        return Some((theirs, my_end));
    }
    places.insert(meeting, Place::First(mine));
    loop {
        if matches!(places.get(&meeting), Some(Place::Both(..))) {
            let Some(Place::Both(theirs, my_end)) = places.remove(&meeting) else { unreachable!("looked at above") };
            return Some((theirs, my_end));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            places.remove(&meeting);
            return None;
        }
        places = changed.wait_timeout(places, left).expect("no panic while held").0;
    }
}
