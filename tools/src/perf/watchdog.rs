//! The time limit of a test: when it passes, the communicators are aborted, so that no rank waits any longer.
//!
//! A thread waits for the deadline, so that the ranks' own path has no clock in it.

use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// A deadline that is set and lifted around each test.
#[derive(Debug, Default)]
pub struct Watchdog {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    deadline: Option<Instant>,
    done: bool,
    barked: bool,
}

impl Watchdog {
    /// Sets the deadline.
    pub fn set(&self, limit: Duration) {
        self.change(|state| state.deadline = Some(Instant::now() + limit));
    }

    /// Lifts the deadline.
    pub fn lift(&self) {
        self.change(|state| state.deadline = None);
    }

    /// Ends [`watch`](Watchdog::watch).
    pub fn dismiss(&self) {
        self.change(|state| state.done = true);
    }

    /// Whether a deadline has passed.
    pub fn barked(&self) -> bool {
        self.lock().barked
    }

    /// Waits until it is dismissed, or a deadline passes: then it calls `bark` once and returns.
    pub fn watch(&self, bark: impl FnOnce()) {
        let mut state = self.lock();
        while !state.done {
            let left = state.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => {
                    state.barked = true;
                    drop(state);
                    return bark();
                }
                Some(left) => self.changed.wait_timeout(state, left).unwrap_or_else(|error| error.into_inner()).0,
                None => self.changed.wait(state).unwrap_or_else(|error| error.into_inner()),
            };
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|error| error.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn barks_after_the_deadline_and_not_when_lifted() {
        let dog = Watchdog::default();
        dog.set(Duration::ZERO);
        let mut barked = false;
        dog.watch(|| barked = true);
        assert!(barked && dog.barked());

        let dog = Watchdog::default();
        std::thread::scope(|scope| {
            scope.spawn(|| dog.watch(|| panic!("barked though lifted")));
            dog.set(Duration::from_secs(3600));
            dog.lift();
            dog.dismiss();
        });
        assert!(!dog.barked());
    }
}
