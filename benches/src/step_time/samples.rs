//! What rounds measured, by name.

use super::Case;
use crate::process::Outcome;

/// Numbers that every case with states has; PyTorch has the first [`OF_PEER`] of them.
const DATA: [&str; 10] = [
    "compute",
    "forward",
    "backward",
    "communication",
    "copy",
    "ddp",
    "ddp backward",
    "ddp waited",
    "exposed share",
    "buckets",
];
const OF_PEER: usize = 7;
const ZERO3: [&str; 2] = ["zero3", "zero3, values kept"];
const PIPELINE: [&str; 7] =
    ["makespan", "busy", "priced makespan", "priced busy", "replayed makespan", "replayed busy", "transfer"];

/// The names of a case's numbers, in the order in which workers print them: times in microseconds, shares and counts as they
/// are.
#[must_use]
pub fn columns(case: Case) -> Vec<&'static str> {
    match case {
        Case::DdpLink | Case::DdpShm => DATA.to_vec(),
        Case::Zero3 | Case::Zero3Link => [&DATA[..], &ZERO3].concat(),
        Case::Pipeline => PIPELINE.to_vec(),
    }
}

/// The names of the numbers that PyTorch's program prints.
pub(super) fn peer_columns() -> Vec<&'static str> {
    DATA[..OF_PEER].to_vec()
}

/// What rounds measured: in each, a number for each name.
#[derive(Clone, PartialEq, Debug)]
pub struct Samples {
    /// The names.
    pub columns: Vec<&'static str>,
    rounds: Vec<Vec<f64>>,
}

impl Samples {
    /// The rounds of what a job said; or the first that is not a number, if there is one.
    ///
    /// # Errors
    ///
    /// The outcome that is not a time, or a failure if numbers are missing.
    pub fn read(outcomes: &[Outcome], columns: Vec<&'static str>, rounds: usize) -> Result<Samples, Outcome> {
        let number = |outcome: &Outcome| match outcome {
            Outcome::Time(number) => Ok(*number),
            other => Err(other.clone()),
        };
        let numbers = outcomes.iter().map(number).collect::<Result<Vec<f64>, Outcome>>()?;
        if numbers.len() != rounds * columns.len() {
            return Err(Outcome::Failed(format!("{} numbers for {rounds} rounds", numbers.len())));
        }
        let rounds = numbers.chunks(columns.len()).map(<[f64]>::to_vec).collect();
        Ok(Samples { columns, rounds })
    }

    /// These and the rounds of another job.
    ///
    /// # Panics
    ///
    /// If its numbers have other names.
    pub fn extend(&mut self, other: Samples) {
        assert_eq!(self.columns, other.columns);
        self.rounds.extend(other.rounds);
    }

    /// How many rounds there are.
    #[must_use]
    pub fn rounds(&self) -> usize {
        self.rounds.len()
    }

    /// The least number of that name, the median and the most.
    ///
    /// # Panics
    ///
    /// If there is no such name or no round.
    #[must_use]
    pub fn spread(&self, name: &str) -> [f64; 3] {
        let place = self.columns.iter().position(|column| *column == name).expect("a name that is there");
        spread(self.rounds.iter().map(|round| round[place]).collect())
    }

    /// The median of what a round's numbers, by name, come to. What is compared within a round was measured within seconds,
    /// and a machine whose speed changes more slowly than that does no harm.
    ///
    /// # Panics
    ///
    /// If there is no such name or no round.
    #[must_use]
    pub fn within(&self, of: impl Fn(&dyn Fn(&str) -> f64) -> f64) -> f64 {
        let place = |name: &str| self.columns.iter().position(|column| *column == name).expect("a name that is there");
        spread(self.rounds.iter().map(|round| of(&|name| round[place(name)])).collect())[1]
    }

    /// The median of the numbers of that name.
    ///
    /// # Panics
    ///
    /// If there is no such name or no round.
    #[must_use]
    pub fn median(&self, name: &str) -> f64 {
        self.spread(name)[1]
    }
}

/// The least, the median and the most.
fn spread(mut numbers: Vec<f64>) -> [f64; 3] {
    numbers.sort_by(f64::total_cmp);
    let last = numbers.len() - 1;
    [numbers[0], (numbers[last / 2] + numbers[last.div_ceil(2)]) / 2.0, numbers[last]]
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::step_time) fn sample(case: Case, rounds: &[&[f64]]) -> Samples {
        let said: Vec<Outcome> = rounds.concat().into_iter().map(Outcome::Time).collect();
        Samples::read(&said, columns(case), rounds.len()).expect("numbers for each name")
    }

    #[test]
    fn medians_are_those_of_a_name() {
        let mut samples = sample(Case::Pipeline, &[&[1., 5., 9., 0., 0., 0., 0.], &[2., 7., 9., 0., 0., 0., 0.]]);
        assert_eq!((samples.median("makespan"), samples.median("busy")), (1.5, 6.0));
        samples.extend(sample(Case::Pipeline, &[&[9., 6.5, 9., 0., 0., 0., 0.]]));
        assert_eq!((samples.rounds(), samples.spread("makespan")), (3, [1.0, 2.0, 9.0]));
        assert_eq!(samples.median("busy"), 6.5);
    }

    #[test]
    fn rounds_are_compared_one_by_one() {
        let rounds = [10., 100., 1000.].map(|slow| [slow, 1.1 * slow, 0., 0., 0., 0., 0.]);
        let samples = sample(Case::Pipeline, &[&rounds[0], &rounds[2], &[100., 300., 0., 0., 0., 0., 0.]]);
        let ratio = samples.within(|of| of("busy") / of("makespan"));
        assert!((ratio - 1.1).abs() < 1e-9, "{ratio}");
    }

    #[test]
    fn what_is_missing_or_failed_is_no_sample() {
        let said = vec![Outcome::Time(1.0); 7];
        assert!(matches!(Samples::read(&said, columns(Case::Pipeline), 2), Err(Outcome::Failed(_))));
        let said = [Outcome::Time(1.0), Outcome::TooSlow(3)];
        assert_eq!(Samples::read(&said, columns(Case::Pipeline), 1), Err(Outcome::TooSlow(3)));
    }
}
