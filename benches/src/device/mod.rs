//! What collectives over memory of GPUs take, against what their memory allows: the program `device`.
//!
//! Workers measure, and print one number after the other in the order of their cells; the program knows the order, collects
//! the rounds and reports medians. So whatever hangs or dies is a worker, which the program ends.

mod local;
mod moved;
mod nccl;
mod ranks;
mod report;
mod rig;

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::process::Outcome;

pub use local::{LocalCell, local};
pub use moved::{Rates, bound_us, bytes_per_rank};
pub use nccl::Nccl;
pub use ranks::{Way, ranks};
pub use report::{Line, Report};

/// A cell's rounds, or why there are none.
pub type Rounds = Result<Vec<f64>, Outcome>;

/// How long a wait may take before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is measured, and how often.
#[derive(Args, Clone, Debug)]
pub struct Sizes {
    /// Tiny sizes, by which the program itself is tested.
    #[arg(long)]
    pub small: bool,
    /// How many rounds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    /// The vectors' sizes in bytes, multiples of 4. 8 B to 256 MiB if not given.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(4..))]
    pub sizes: Vec<u32>,
}

/// What a worker does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Part {
    /// Copies and reductions of one process on the first device.
    Local,
    /// One rank, or several that are threads, of all_reduces.
    Ranks,
}

impl Sizes {
    /// How often everything is measured.
    #[must_use]
    pub fn rounds(&self) -> usize {
        usize::from(self.rounds)
    }

    /// The vectors' sizes in bytes.
    #[must_use]
    pub fn vectors(&self) -> Vec<usize> {
        match (&self.sizes[..], self.small) {
            ([], false) => vec![8, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20],
            ([], true) => vec![8, 4 << 10, 64 << 10],
            (sizes, _) => sizes.iter().map(|bytes| *bytes as usize / 4 * 4).collect(),
        }
    }

    /// The bytes of each array that is copied or folded: more than any cache holds, but for tests.
    #[must_use]
    pub fn array(&self) -> usize {
        if self.small { 64 << 10 } else { 256 << 20 }
    }

    /// How long the calls of one number should take together.
    fn span(&self) -> Duration {
        if self.small { Duration::ZERO } else { Duration::from_millis(20) }
    }

    /// How many calls fill the span, if one takes this long.
    fn iterations(&self, one: Duration) -> usize {
        let one = one.as_secs_f64().max(1e-7);
        (self.span().as_secs_f64() / one).clamp(1.0, 200.0) as usize
    }

    /// The same as a worker's arguments.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let listed: Vec<String> = self.sizes.iter().map(ToString::to_string).collect();
        let mut words = vec![format!("--rounds={}", self.rounds)];
        words.extend(self.small.then(|| "--small".to_owned()));
        words.extend((!listed.is_empty()).then(|| format!("--sizes={}", listed.join(","))));
        words
    }
}

/// A worker's numbers, regrouped: `rounds` times `cells`, one after the other, become each cell's rounds, or why there are none.
#[must_use]
pub fn by_cell(outcomes: &[Outcome], cells: usize, rounds: usize) -> Vec<Rounds> {
    let missing = || match outcomes.last() {
        Some(failed @ (Outcome::Failed(_) | Outcome::TooSlow(_))) => failed.clone(),
        _ => Outcome::Failed("the worker ended before it came to this".to_owned()),
    };
    let number = |round: usize, cell: usize| match outcomes.get(round * cells + cell) {
        Some(Outcome::Time(number)) => Ok(*number),
        Some(other) => Err(other.clone()),
        None => Err(missing()),
    };
    (0..cells).map(|cell| (0..rounds).map(|round| number(round, cell)).collect()).collect()
}

/// The median; of none, not a number.
#[must_use]
pub fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        len if len.is_multiple_of(2) => f64::midpoint(sorted[half - 1], sorted[half]),
        _ => sorted[half],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_to_their_cells() {
        let times = |numbers: &[f64]| numbers.iter().map(|number| Outcome::Time(*number)).collect::<Vec<_>>();
        assert_eq!(by_cell(&times(&[1.0, 10.0, 3.0, 30.0]), 2, 2), [Ok(vec![1.0, 3.0]), Ok(vec![10.0, 30.0])]);
        let mut cut = times(&[1.0, 10.0, 3.0]);
        cut.push(Outcome::TooSlow(7));
        assert_eq!(by_cell(&cut, 2, 2), [Ok(vec![1.0, 3.0]), Err(Outcome::TooSlow(7))]);
        assert!(by_cell(&cut, 3, 2).iter().all(Result::is_err), "later cells are missing for the same reason");
        assert_eq!(by_cell(&cut, 3, 2)[1], Err(Outcome::TooSlow(7)));
    }

    #[test]
    fn medians() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0])), (2.0, 2.5));
        assert!(median(&[]).is_nan());
    }
}
