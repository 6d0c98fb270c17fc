//! The scale of the loss: lowered when gradients overflow, raised when they haven't for long.

use serde::{Deserialize, Serialize};

use super::overflow::Overflow;
use crate::error::{Error, Result};

/// How the scale moves.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct LossScalerOptions {
    /// The first scale.
    pub initial: f64,
    /// What it is multiplied by after `interval` steps in a row without overflow.
    pub growth: f64,
    /// What it is multiplied by after overflow.
    pub backoff: f64,
    /// How many steps in a row without overflow raise it.
    pub interval: u64,
    /// How many overflows lower it: those before the last of them only skip their steps. The count begins anew when the scale
    /// is raised.
    pub hysteresis: u64,
    /// It is never lowered below this.
    pub min: f64,
    /// It is never raised above this.
    pub max: f64,
}

impl Default for LossScalerOptions {
    fn default() -> LossScalerOptions {
        LossScalerOptions {
            initial: 65536.0,
            growth: 2.0,
            backoff: 0.5,
            interval: 2000,
            hysteresis: 1,
            min: 1.0,
            max: 16_777_216.0,
        }
    }
}

/// A scale for losses. Its whole state is what is serialized.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LossScaler {
    options: LossScalerOptions,
    scale: f64,
    /// Steps without overflow since the last change.
    good_steps: u64,
    /// Overflows until the scale is lowered.
    patience: u64,
    skipped: u64,
}

impl LossScaler {
    /// A scale at its beginning.
    ///
    /// # Errors
    /// The options make no sense. Factors that aren't powers of two would cost bits.
    pub fn new(options: LossScalerOptions) -> Result<LossScaler> {
        let LossScalerOptions { initial, growth, backoff, interval, hysteresis, min, max } = options;
        let exact = |number: f64| number.is_normal() && number > 0.0 && number.to_bits() << 12 == 0;
        let sound = [initial, growth, backoff, min, max].into_iter().all(exact)
            && min <= initial
            && initial <= max
            && growth >= 1.0
            && backoff < 1.0
            && interval > 0
            && hysteresis > 0;
        if !sound {
            return Err(Error::invalid(format!(
                "a loss scaler takes powers of two, min <= initial <= max, backoff < 1 <= growth, and counts above 0, not \
                 {options:?}"
            )));
        }
        Ok(LossScaler { options, scale: initial, good_steps: 0, patience: hysteresis, skipped: 0 })
    }

    /// What losses are to be multiplied by now, and the sums of gradients divided by.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// How many steps were skipped so far.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Moves on after a step, by what all ranks agreed on.
    pub fn update(&mut self, overflow: Option<Overflow>) {
        let options = self.options;
        let Some(Overflow { rank }) = overflow else {
            self.good_steps += 1;
            if self.good_steps == options.interval {
                self.scale = (self.scale * options.growth).min(options.max);
                (self.good_steps, self.patience) = (0, options.hysteresis);
            }
            return;
        };
        self.skipped += 1;
        self.good_steps = 0;
        self.patience = self.patience.saturating_sub(1);
        if self.patience == 0 {
            self.scale = (self.scale * options.backoff).max(options.min);
        }
        tracing::debug!(rank, scale = self.scale, skipped = self.skipped, "gradients overflowed, the step is skipped");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OVERFLOW: Option<Overflow> = Some(Overflow { rank: 0 });

    fn options(interval: u64, hysteresis: u64) -> LossScalerOptions {
        LossScalerOptions { initial: 64.0, interval, hysteresis, min: 2.0, max: 256.0, ..LossScalerOptions::default() }
    }

    /// What happened, oldest first, to the scale after each step: by looking back, with no state.
    fn by_history(options: LossScalerOptions, history: &[bool]) -> Vec<f64> {
        let mut scales: Vec<f64> = Vec::new();
        let mut raised_at = 0;
        for end in 1..=history.len() {
            let before = scales.last().copied().unwrap_or(options.initial);
            let overflows = history[raised_at..end].iter().filter(|overflow| **overflow).count() as u64;
            let last = history[..end].iter().rposition(|overflow| *overflow).map_or(0, |at| at + 1);
            let good = (end - last.max(raised_at)) as u64;
            scales.push(if history[end - 1] {
                if overflows >= options.hysteresis { (before * options.backoff).max(options.min) } else { before }
            } else if good == options.interval {
                raised_at = end;
                (before * options.growth).min(options.max)
            } else {
                before
            });
        }
        scales
    }

    proptest! {
        #[test]
        fn the_scale_follows_from_the_history(
            interval in 1u64..6, hysteresis in 1u64..4, history in prop::collection::vec(prop::bool::weighted(0.3), 0..80),
            saved_at in any::<prop::sample::Index>(),
        ) {
            let options = options(interval, hysteresis);
            let mut scaler = LossScaler::new(options).unwrap();
            let saved_at = saved_at.index(history.len() + 1);
            let mut scales = Vec::new();
            for (at, overflow) in history.iter().enumerate() {
                if at == saved_at {
                    scaler = serde_json::from_str(&serde_json::to_string(&scaler).unwrap()).unwrap();
                }
                scaler.update(if *overflow { OVERFLOW } else { None });
                scales.push(scaler.scale());
            }
            prop_assert_eq!(&scales, &by_history(options, &history));
            prop_assert!(scales.iter().all(|scale| options.min <= *scale && *scale <= options.max && scale.log2().fract() == 0.0));
            prop_assert_eq!(scaler.skipped() as usize, history.iter().filter(|overflow| **overflow).count());
        }
    }

    #[test]
    fn patience_is_not_won_back_by_a_good_step() {
        let mut scaler = LossScaler::new(options(100, 2)).unwrap();
        for (overflow, want) in [(OVERFLOW, 64.0), (None, 64.0), (OVERFLOW, 32.0), (OVERFLOW, 16.0)] {
            scaler.update(overflow);
            assert_eq!(scaler.scale(), want);
        }
    }

    #[test]
    fn senseless_options_are_refused() {
        let sound = LossScalerOptions::default();
        assert!(LossScaler::new(sound).is_ok());
        for wrong in [
            LossScalerOptions { initial: 3.0, ..sound },
            LossScalerOptions { backoff: 1.0, ..sound },
            LossScalerOptions { interval: 0, ..sound },
            LossScalerOptions { hysteresis: 0, ..sound },
            LossScalerOptions { min: 131_072.0, ..sound },
            LossScalerOptions { growth: f64::INFINITY, ..sound },
        ] {
            assert!(LossScaler::new(wrong).is_err(), "{wrong:?}");
        }
    }
}
