//! Which calls run over registered memory, and where their buffers lie in it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use super::Communicator;
use super::prepare::Prepared;
use crate::engine::{Placed, Turn, Window, Windows, suits_windows, turns_of_windows};

/// Calls below this size gain nothing.
pub(super) const WORTH_BYTES: usize = 1 << 20;

/// The registered memory of a communicator that is still there.
#[derive(Default)]
pub(super) struct Registry {
    windows: Mutex<Vec<Weak<Window>>>,
}

impl Registry {
    pub(super) fn admit(&self, window: &Arc<Window>) {
        let mut windows = self.windows.lock().expect("no panic while held");
        windows.retain(|known| known.strong_count() > 0);
        windows.push(Arc::downgrade(window));
    }

    /// Where `bytes` from an address on lie, if that is all in one window.
    fn find(&self, me: usize, start: *const u8, bytes: usize) -> Option<Placed> {
        let windows = self.windows.lock().expect("no panic while held");
        windows.iter().filter_map(Weak::upgrade).find_map(|window| {
            let mine = window.all[me].as_ref()?;
            let offset = start.addr().checked_sub(mine.start().addr())?;
            (offset.checked_add(bytes)? <= mine.bytes()).then(|| Placed { window: window.clone(), offset })
        })
    }
}

impl Communicator {
    /// The call over windows, if this one may run so: then it takes several turns from the next on. Every rank decides
    /// alike: on what registered memory there was ever made, the collective, its size, and the choice of the row.
    pub(super) fn over_windows(&self, prepared: &Prepared, history: u64) -> Option<Windows> {
        let inner = &self.inner;
        let collective = prepared.plan().collective;
        if inner.memories.load(Ordering::Relaxed) == 0
            || !suits_windows(collective)
            || prepared.message_bytes() < WORTH_BYTES
            || prepared.plan().even_bytes().is_none()
            || self.options.algorithm.is_some()
            || !inner.facts.may_use_windows(collective)
        {
            return None;
        }
        let number = inner.next_turns(turns_of_windows(collective));
        let (input, output) = prepared.places();
        let place = |start: *const u8, bytes: usize| inner.registry.find(inner.rank, start, bytes);
        let mut output = place(output.0.cast_const(), output.1);
        let input = place(input.0, input.1);
        if prepared.overwrites_what_others_read() {
            output = None;
        }
        Some(Windows::new(inner.size, Turn { number, history }, input, output))
    }
}
