//! Time as an argument: nanoseconds from an arbitrary origin, read from a real or a virtual clock.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A moment, in nanoseconds since the clock's origin. Moments of different clocks don't compare.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

impl Time {
    /// The moment that never comes: a deadline of `NEVER` doesn't expire.
    pub const NEVER: Time = Time(u64::MAX);

    /// The moment `duration` later; [`Time::NEVER`] where the sum doesn't fit.
    #[must_use]
    pub fn after(self, duration: Duration) -> Time {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Time(self.0.saturating_add(nanos))
    }

    /// How long from `earlier` to this moment; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Where the present moment comes from.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's monotonic clock.
    Real,
    /// A clock that a simulation moves.
    Virtual(Arc<AtomicU64>),
}

impl Clock {
    /// A virtual clock at its origin.
    #[must_use]
    pub fn simulated() -> Clock {
        Clock::Virtual(Arc::new(AtomicU64::new(0)))
    }

    /// The present moment.
    #[must_use]
    pub fn now(&self) -> Time {
        match self {
            Clock::Real => {
                static ORIGIN: OnceLock<Instant> = OnceLock::new();
                Time(0).after(ORIGIN.get_or_init(Instant::now).elapsed())
            }
            Clock::Virtual(nanos) => Time(nanos.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_stays_never() {
        assert_eq!(Time::NEVER.after(Duration::from_secs(1)), Time::NEVER);
        assert_eq!(Time(5).since(Time(9)), Duration::ZERO);
    }

    #[test]
    fn real_time_moves_forward() {
        let first = Clock::Real.now();
        assert!(first <= Clock::Real.now());
    }
}
