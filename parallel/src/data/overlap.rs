//! How much of the sending was hidden behind the backward pass.

use std::time::{Duration, Instant};

/// What became of the reductions that were started, since the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Overlap {
    /// How many were started.
    pub started: u64,
    /// How many of them before `finish_gradients`, in the backward pass.
    pub started_early: u64,
    /// How many were done when they were asked for.
    pub ready: u64,
    /// From each start to when its result was asked for: time in which this rank did something else.
    pub hidden: Duration,
    /// Time in which this rank waited: for results, and at the end of a step for the other ranks to say which parameters they
    /// have used, which comes behind what was sent before.
    pub waited: Duration,
}

impl Overlap {
    /// The share of the time in flight in which this rank did something else, from 0 to 1; 1 if nothing was sent. Results
    /// that were there long before they were asked for make it look better than it is; `waited` is exact.
    #[must_use]
    pub fn hidden_share(&self) -> f64 {
        let (hidden, waited) = (self.hidden.as_secs_f64(), self.waited.as_secs_f64());
        if hidden + waited == 0.0 { 1.0 } else { hidden / (hidden + waited) }
    }

    /// What became of those since an earlier count.
    #[must_use]
    pub fn since(&self, earlier: &Overlap) -> Overlap {
        Overlap {
            started: self.started - earlier.started,
            started_early: self.started_early - earlier.started_early,
            ready: self.ready - earlier.ready,
            hidden: self.hidden - earlier.hidden,
            waited: self.waited - earlier.waited,
        }
    }

    /// Counts something that was started at `begun` and is asked for at `asked`.
    pub(crate) fn ask(&mut self, begun: Instant, asked: Instant, is_ready: bool) {
        self.ready += u64::from(is_ready);
        self.hidden += asked.saturating_duration_since(begun);
    }

    /// Waits for something that was started at `begun`, and counts.
    pub(crate) fn wait<T>(&mut self, begun: Instant, is_ready: bool, wait: impl FnOnce() -> T) -> T {
        let asked = Instant::now();
        self.ask(begun, asked, is_ready);
        let result = wait();
        self.waited += asked.elapsed();
        result
    }
}

impl std::ops::Add for Overlap {
    type Output = Overlap;

    fn add(self, other: Overlap) -> Overlap {
        Overlap {
            started: self.started + other.started,
            started_early: self.started_early + other.started_early,
            ready: self.ready + other.ready,
            hidden: self.hidden + other.hidden,
            waited: self.waited + other.waited,
        }
    }
}
