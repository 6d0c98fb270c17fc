//! Learning rates: a pure function of the step, put together from phases.

use crate::error::{Error, Result};

/// How a rate goes from one end of a phase to the other: a row of [`CURVES`].
#[derive(Clone, Copy)]
pub struct Curve {
    /// Its name in texts.
    pub name: &'static str,
    /// The rate, from where the phase begins and where it ends and the share of its steps that are done.
    pub rate: fn(f64, f64, f64) -> f64,
}

/// The curves. A new one is a row.
pub const CURVES: [Curve; 5] = [
    Curve { name: "linear", rate: |from, to, share| from + (to - from) * share },
    Curve {
        name: "cosine",
        rate: |from, to, share| to + (from - to) * (1.0 + (std::f64::consts::PI * share).cos()) / 2.0,
    },
    Curve { name: "exponential", rate: |from, to, share| from * (to / from).powf(share) },
    // The last phase of warm-up, stable, decay (Hägele et al., 2024).
    Curve { name: "one_minus_sqrt", rate: |from, to, share| to + (from - to) * (1.0 - share.sqrt()) },
    Curve { name: "inverse_sqrt", rate: inverse_sqrt },
];

/// from * sqrt(s / (s + share)), with the s for which it ends where it should.
fn inverse_sqrt(from: f64, to: f64, share: f64) -> f64 {
    let ratio = (to / from).powi(2);
    if ratio >= 1.0 { from } else { from / (1.0 + share * (1.0 - ratio) / ratio).sqrt() }
}

impl std::fmt::Debug for Curve {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Curve {
    fn eq(&self, other: &Curve) -> bool {
        self.name == other.name
    }
}

/// Some steps on one curve.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Phase {
    /// The curve.
    pub curve: Curve,
    /// The rate before the first step.
    pub from: f64,
    /// The rate of the last step.
    pub to: f64,
    /// How many steps there are.
    pub steps: u64,
}

/// Phases, one after another; after the last, its last rate.
///
/// The first step of a phase is one share on its way already, and the last one is at its end. So a warm-up from 0 wastes no
/// step, and two phases that meet at a rate use it once.
///
/// ```
/// use paceline_parallel::optimizer::Schedule;
///
/// let schedule = Schedule::cosine(4e-4, 4e-5, 4, 100);
/// assert_eq!([0, 3, 99, 500].map(|step| schedule.at(step)), [1e-4, 4e-4, 4e-5, 4e-5]);
/// assert_eq!(schedule, "linear 0 0.0004 4, cosine 0.0004 0.00004 96".parse()?);
/// # Ok::<(), paceline_parallel::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Schedule {
    phases: Vec<Phase>,
}

impl Schedule {
    /// One rate.
    #[must_use]
    pub fn constant(rate: f64) -> Schedule {
        Schedule::default().then("linear", rate, rate, 1)
    }

    /// Straight from 0 up to `peak` in `warm_up` steps; a cosine down to `end` at step `total`.
    #[must_use]
    pub fn cosine(peak: f64, end: f64, warm_up: u64, total: u64) -> Schedule {
        Schedule::default().then("linear", 0.0, peak, warm_up).then("cosine", peak, end, total.saturating_sub(warm_up))
    }

    /// Straight from 0 up to `peak` in `warm_up` steps; straight down to `end` at step `total`.
    #[must_use]
    pub fn linear(peak: f64, end: f64, warm_up: u64, total: u64) -> Schedule {
        Schedule::default().then("linear", 0.0, peak, warm_up).then("linear", peak, end, total.saturating_sub(warm_up))
    }

    /// Straight from 0 up to `peak` in `warm_up` steps; then `peak` times the root of `warm_up` by the step, until step `total`.
    #[must_use]
    pub fn inverse_sqrt(peak: f64, warm_up: u64, total: u64) -> Schedule {
        let rest = total.saturating_sub(warm_up);
        let end = peak * (warm_up.max(1) as f64 / (warm_up.max(1) + rest) as f64).sqrt();
        Schedule::default().then("linear", 0.0, peak, warm_up).then("inverse_sqrt", peak, end, rest)
    }

    /// Warm-up, stable, decay: straight from 0 up to `peak`, `stable` steps of that, down to `end` in `decay` steps.
    #[must_use]
    pub fn warm_up_stable_decay(peak: f64, end: f64, [warm_up, stable, decay]: [u64; 3]) -> Schedule {
        let up = Schedule::default().then("linear", 0.0, peak, warm_up).then("linear", peak, peak, stable);
        up.then("one_minus_sqrt", peak, end, decay)
    }

    /// This, and another phase after it; none if it has no steps.
    ///
    /// # Panics
    /// If there is no such curve.
    #[must_use]
    pub fn then(mut self, curve: &str, from: f64, to: f64, steps: u64) -> Schedule {
        let curve = CURVES.into_iter().find(|row| row.name == curve);
        let curve = curve.expect("a curve is one of the rows of CURVES");
        if steps > 0 {
            self.phases.push(Phase { curve, from, to, steps });
        }
        self
    }

    /// The phases.
    #[must_use]
    pub fn phases(&self) -> &[Phase] {
        &self.phases
    }

    /// The rate of a step, the first being 0. A schedule without phases has rate 0.
    #[must_use]
    pub fn at(&self, step: u64) -> f64 {
        let mut rest = step;
        for phase in &self.phases {
            if rest + 1 < phase.steps {
                return (phase.curve.rate)(phase.from, phase.to, (rest + 1) as f64 / phase.steps as f64);
            }
            if rest + 1 == phase.steps {
                return phase.to;
            }
            rest -= phase.steps;
        }
        self.phases.last().map_or(0.0, |phase| phase.to)
    }
}

impl std::fmt::Display for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = |phase: &Phase| format!("{} {} {} {}", phase.curve.name, phase.from, phase.to, phase.steps);
        f.write_str(&self.phases.iter().map(word).collect::<Vec<_>>().join(", "))
    }
}

impl std::str::FromStr for Schedule {
    type Err = Error;

    /// Phases between commas, each a curve, the rates at both ends, and a number of steps.
    fn from_str(text: &str) -> Result<Schedule> {
        let mut schedule = Schedule::default();
        for phase in text.split(',') {
            let wrong = |why: &str| Error::invalid(format!("`{}` in the schedule `{text}`: {why}", phase.trim()));
            let words: Vec<&str> = phase.split_whitespace().collect();
            let [curve, from, to, steps] = words[..] else {
                return Err(wrong("it must be like linear 0 3e-4 2000"));
            };
            if !CURVES.iter().any(|row| row.name == curve) {
                return Err(wrong(&format!("the curves are {}", CURVES.map(|row| row.name).join(", "))));
            }
            let rate = |word: &str| match word.parse::<f64>() {
                Ok(rate) if rate.is_finite() && rate >= 0.0 => Ok(rate),
                _ => Err(wrong(&format!("{word} is no rate"))),
            };
            let steps = steps.parse().map_err(|_| wrong(&format!("{steps} is no number of steps")))?;
            schedule = schedule.then(curve, rate(from)?, rate(to)?, steps);
        }
        Ok(schedule)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rates_are_what_their_names_say() {
        let (peak, end) = (8.0, 2.0);
        for (schedule, step, want) in [
            (Schedule::default(), 3, 0.0),
            (Schedule::constant(peak), 0, 8.0),
            (Schedule::constant(peak), 900, 8.0),
            (Schedule::linear(peak, end, 4, 10), 0, 2.0),
            (Schedule::linear(peak, end, 4, 10), 3, 8.0),
            (Schedule::linear(peak, end, 4, 10), 4, 7.0),
            (Schedule::linear(peak, end, 4, 10), 9, 2.0),
            (Schedule::linear(peak, end, 4, 10), 10, 2.0),
            (Schedule::linear(peak, end, 0, 6), 0, 7.0),
            (Schedule::cosine(peak, end, 4, 10), 1, 4.0),
            (Schedule::cosine(peak, end, 4, 10), 6, 5.0),
            (Schedule::cosine(peak, end, 4, 10), 5, 2.0 + 6.0 * 0.75),
            (Schedule::inverse_sqrt(peak, 4, 1000), 3, 8.0),
            (Schedule::inverse_sqrt(peak, 4, 1000), 15, 4.0),
            (Schedule::inverse_sqrt(peak, 4, 1000), 63, 2.0),
            (Schedule::inverse_sqrt(peak, 4, 1000), 399, 0.8),
            (Schedule::warm_up_stable_decay(peak, 0.0, [2, 3, 4]), 1, 8.0),
            (Schedule::warm_up_stable_decay(peak, 0.0, [2, 3, 4]), 4, 8.0),
            (Schedule::warm_up_stable_decay(peak, 0.0, [2, 3, 4]), 5, 4.0),
            (Schedule::warm_up_stable_decay(peak, 0.0, [2, 3, 4]), 8, 0.0),
            (Schedule::default().then("exponential", 16.0, 1.0, 4), 1, 4.0),
        ] {
            let rate = schedule.at(step);
            assert!((rate - want).abs() < 1e-12, "{schedule} at {step}: {rate} instead of {want}");
        }
    }

    proptest! {
        #[test]
        fn a_schedule_is_read_as_it_is_written(
            phases in prop::collection::vec((0usize..CURVES.len(), 0.0f64..1.0, 0.0f64..1.0, 1u64..1000), 1..5),
        ) {
            let schedule = phases.iter().fold(Schedule::default(), |schedule, (curve, from, to, steps)| {
                schedule.then(CURVES[*curve].name, *from, *to, *steps)
            });
            prop_assert_eq!(schedule.to_string().parse::<Schedule>().unwrap(), schedule);
        }

        /// Every curve stays between its ends and is monotone.
        #[test]
        fn rates_stay_between_the_ends(curve in 0usize..CURVES.len(), from in 0.1f64..1.0, less in 0.01f64..1.0, steps in 1u64..100) {
            let to = from * less;
            let schedule = Schedule::default().then(CURVES[curve].name, from, to, steps);
            let rates: Vec<f64> = std::iter::once(from).chain((0..steps + 2).map(|step| schedule.at(step))).collect();
            prop_assert!(rates.windows(2).all(|pair| pair[1] <= pair[0] + 1e-12 && to - 1e-12 <= pair[1]), "{:?}", rates);
            prop_assert_eq!(rates[steps as usize], to);
        }
    }

    #[test]
    fn what_is_wrong_with_a_text_is_said() {
        for (text, said) in [
            ("linear 0 1", "must be like"),
            ("slope 0 1 2", "the curves are linear"),
            ("linear 0 x 2", "no rate"),
            ("linear 0 -1 2", "no rate"),
            ("linear 0 1 2.5", "no number of steps"),
        ] {
            let error = text.parse::<Schedule>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
