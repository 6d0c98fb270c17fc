//! How much of a collective's time is hidden behind computing: the call alone, computing for as long alone, and both at
//! once, in turns.

mod computing;
mod table;
pub(crate) mod worker;

use crate::process::Outcome;

pub use table::Table;

/// What one round measured: the slowest rank's times and the largest processor times, in microseconds, in the order in which
/// the loops print them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// The blocking call.
    pub blocking: f64,
    /// Computing.
    pub computing: f64,
    /// The started call, computing, and the wait for the call.
    pub both: f64,
    /// Processor time of the blocking call, of all threads.
    pub blocking_cpu: f64,
    /// Processor time of all threads but the computing one, while the call was under way beside it.
    pub beside_cpu: f64,
}

impl Sample {
    /// Numbers in a sample.
    pub const NUMBERS: usize = 5;

    /// Samples from what a job said; the first that is not a time, if there is one.
    ///
    /// # Errors
    ///
    /// The outcome that is not a time, or a failure if numbers are missing.
    pub fn read(outcomes: &[Outcome], rounds: usize) -> Result<Vec<Sample>, Outcome> {
        let time = |outcome: &Outcome| match outcome {
            Outcome::Time(us) => Ok(*us),
            other => Err(other.clone()),
        };
        let numbers = outcomes.iter().map(time).collect::<Result<Vec<f64>, Outcome>>()?;
        if numbers.len() != rounds * Sample::NUMBERS {
            return Err(Outcome::Failed(format!("{} numbers for {rounds} rounds", numbers.len())));
        }
        let sample = |numbers: &[f64]| {
            let [blocking, computing, both, blocking_cpu, beside_cpu] = *numbers else {
                unreachable!("chunks of five")
            };
            Sample { blocking, computing, both, blocking_cpu, beside_cpu }
        };
        Ok(numbers.chunks(Sample::NUMBERS).map(sample).collect())
    }

    /// Each number's median.
    ///
    /// # Panics
    ///
    /// Without samples.
    #[must_use]
    pub fn median(samples: &[Sample]) -> Sample {
        let median = |of: fn(&Sample) -> f64| {
            let mut numbers: Vec<f64> = samples.iter().map(of).collect();
            numbers.sort_by(f64::total_cmp);
            (numbers[(numbers.len() - 1) / 2] + numbers[numbers.len() / 2]) / 2.0
        };
        Sample {
            blocking: median(|sample| sample.blocking),
            computing: median(|sample| sample.computing),
            both: median(|sample| sample.both),
            blocking_cpu: median(|sample| sample.blocking_cpu),
            beside_cpu: median(|sample| sample.beside_cpu),
        }
    }

    /// The share of the blocking call's time that computing hides. Below 0 where the two disturb each other more than the
    /// call alone takes.
    #[must_use]
    pub fn hidden(&self) -> f64 {
        1.0 - (self.both - self.computing) / self.blocking
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(numbers: &[f64]) -> Vec<Outcome> {
        numbers.iter().copied().map(Outcome::Time).collect()
    }

    #[test]
    fn samples_are_read_and_their_median_taken() {
        let said = times(&[100., 100., 110., 9., 8., 300., 100., 190., 7., 6.]);
        let samples = Sample::read(&said, 2).expect("two samples");
        let median = Sample::median(&samples);
        assert_eq!(median, Sample { blocking: 200., computing: 100., both: 150., blocking_cpu: 8., beside_cpu: 7. });
        assert_eq!(median.hidden(), 0.75);
        assert_eq!(samples[0].hidden(), 0.9);
    }

    #[test]
    fn what_is_missing_or_failed_is_no_sample() {
        assert!(matches!(Sample::read(&times(&[1.; 9]), 2), Err(Outcome::Failed(_))));
        let mut said = times(&[1.; 5]);
        said.push(Outcome::TooSlow(3));
        assert_eq!(Sample::read(&said, 2), Err(Outcome::TooSlow(3)));
    }
}
