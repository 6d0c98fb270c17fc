//! Computing that touches neither memory nor any library, for a time that is asked for.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Turns that are timed together.
const TURNS: u64 = 20_000_000;

/// How fast this processor computes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Computing {
    turns_per_s: f64,
}

impl Computing {
    /// Takes the best of a few tries, which others' processes disturb.
    pub(super) fn calibrated() -> Computing {
        let once = |_| {
            let start = Instant::now();
            turn(TURNS);
            start.elapsed()
        };
        let best = (0..5).map(once).min().expect("some tries");
        Computing { turns_per_s: TURNS as f64 / best.as_secs_f64() }
    }

    /// Computes for as long as `time` on an undisturbed processor.
    pub(super) fn run(&self, time: Duration) {
        turn((self.turns_per_s * time.as_secs_f64()) as u64);
    }
}

/// A chain of multiplications, each of which needs the one before. Not inlined, so that it is the same code for every number
/// of turns.
#[inline(never)]
fn turn(turns: u64) {
    let mut state = black_box(1u64);
    for _ in 0..black_box(turns) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
    black_box(state);
}
