//! What was measured: times of all rounds by library, table and size, and the ratios between them.

use std::collections::BTreeMap;

use crate::matrix::Group;
use crate::process::Outcome;

/// Everything that was measured so far. Library 0 is paceline.
pub struct Results {
    /// The libraries' names, paceline's first.
    pub libraries: Vec<&'static str>,
    entries: BTreeMap<(Group, usize, usize), Entry>,
}

/// One library at one size of one table.
#[derive(Default, Debug)]
pub struct Entry {
    times_us: Vec<f64>,
    end: Option<Outcome>,
}

/// How paceline stands at one size of one table.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ratio {
    /// The table.
    pub group: Group,
    /// The size.
    pub bytes: usize,
    /// The best peer's time over paceline's.
    pub ratio: f64,
    /// Which peer that is.
    pub peer: &'static str,
}

impl Entry {
    /// The median over the rounds, in microseconds.
    #[must_use]
    pub fn median_us(&self) -> Option<f64> {
        let mut times = self.times_us.clone();
        times.sort_by(f64::total_cmp);
        let half = times.len() / 2;
        if times.len().is_multiple_of(2) {
            Some((times.get(half.checked_sub(1)?)? + times[half]) / 2.0)
        } else {
            Some(times[half])
        }
    }

    /// The quickest round, in microseconds.
    #[must_use]
    pub fn min_us(&self) -> Option<f64> {
        self.times_us.iter().copied().min_by(f64::total_cmp)
    }

    /// How many rounds there are.
    #[must_use]
    pub fn rounds(&self) -> usize {
        self.times_us.len()
    }

    /// Why there are no more, if there is a reason.
    #[must_use]
    pub fn end(&self) -> Option<&Outcome> {
        self.end.as_ref()
    }
}

impl Results {
    /// Nothing yet.
    #[must_use]
    pub fn new(libraries: Vec<&'static str>) -> Results {
        Results { libraries, entries: BTreeMap::new() }
    }

    /// Adds what became of a cell in one round.
    pub fn add(&mut self, group: Group, bytes: usize, library: usize, outcome: Outcome) {
        let entry = self.entries.entry((group, bytes, library)).or_default();
        match outcome {
            Outcome::Time(us) => entry.times_us.push(us),
            other => entry.end = Some(other),
        }
    }

    /// What is known about a library at a size of a table.
    #[must_use]
    pub fn entry(&self, group: Group, bytes: usize, library: usize) -> Option<&Entry> {
        self.entries.get(&(group, bytes, library))
    }

    /// Whether another round makes sense.
    #[must_use]
    pub fn is_open(&self, group: Group, bytes: usize, library: usize) -> bool {
        self.entry(group, bytes, library).is_none_or(|entry| entry.end.is_none())
    }

    /// The tables that have anything in them.
    #[must_use]
    pub fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = self.entries.keys().map(|(group, _, _)| *group).collect();
        groups.dedup();
        groups
    }

    /// The sizes of a table.
    #[must_use]
    pub fn sizes(&self, group: Group) -> Vec<usize> {
        let of_group = self.entries.keys().filter(|(of, _, _)| *of == group);
        let mut sizes: Vec<usize> = of_group.map(|(_, bytes, _)| *bytes).collect();
        sizes.dedup();
        sizes
    }

    /// How paceline stands at a size, if it and a peer were measured.
    #[must_use]
    pub fn ratio(&self, group: Group, bytes: usize) -> Option<Ratio> {
        let median = |library| self.entry(group, bytes, library)?.median_us();
        let ours = median(0)?;
        let peers = (1..self.libraries.len()).filter_map(|library| Some((library, median(library)?)));
        let (best, us) = peers.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
        Some(Ratio { group, bytes, ratio: us / ours, peer: self.libraries[best] })
    }

    /// All ratios of the tables that `applies` picks.
    pub fn ratios(&self, applies: impl Fn(&Group) -> bool) -> Vec<Ratio> {
        let groups = self.groups().into_iter().filter(applies);
        groups
            .flat_map(|group| self.sizes(group).into_iter().filter_map(move |bytes| self.ratio(group, bytes)))
            .collect()
    }
}

/// The geometric mean, as ratios want it; 1 of none.
#[must_use]
pub fn geometric_mean(ratios: &[Ratio]) -> f64 {
    let logarithms: f64 = ratios.iter().map(|ratio| ratio.ratio.ln()).sum();
    (logarithms / ratios.len().max(1) as f64).exp()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::matrix::{Call, ElementType, Wire};

    pub(crate) const GROUP: Group =
        Group { wire: Wire::Shm, ranks: 2, call: Call::AllReduce, element: ElementType::F32 };

    /// Ratios of 2 at 8 bytes and 0.5 at 64, and every kind of outcome at 512.
    pub(crate) fn sample() -> Results {
        let mut results = Results::new(vec!["paceline", "open mpi", "mpich"]);
        let times =
            [(8, 0, &[1.0, 9.0, 2.0][..]), (8, 1, &[5.0]), (8, 2, &[4.0]), (64, 0, &[6.0]), (64, 1, &[3.0, 3.0])];
        for (bytes, library, times) in times {
            times.iter().for_each(|us| results.add(GROUP, bytes, library, Outcome::Time(*us)));
        }
        results.add(GROUP, 512, 0, Outcome::Time(7.0));
        results.add(GROUP, 512, 1, Outcome::TooSlow(20));
        results.add(GROUP, 512, 2, Outcome::NotOffered("no such type".into()));
        results.add(GROUP, 64, 2, Outcome::Failed("rank 1: oh dear".into()));
        results
    }

    #[test]
    fn ratios_are_of_medians() {
        let results = sample();
        let ratio = |bytes| results.ratio(GROUP, bytes).map(|ratio| (ratio.ratio, ratio.peer));
        assert_eq!(ratio(8), Some((2.0, "mpich")));
        assert_eq!(ratio(64), Some((0.5, "open mpi")));
        assert_eq!(ratio(512), None);
        let ratios = results.ratios(|group| *group == GROUP);
        assert_eq!(ratios.len(), 2);
        assert!((geometric_mean(&ratios) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn medians_of_even_and_odd_and_none() {
        let median = |times: &[f64]| Entry { times_us: times.to_vec(), end: None }.median_us();
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
    }

    #[test]
    fn what_ended_is_not_run_again() {
        let results = sample();
        assert!(results.is_open(GROUP, 8, 0) && results.is_open(GROUP, 4096, 0));
        assert!(!results.is_open(GROUP, 512, 1) && !results.is_open(GROUP, 512, 2) && !results.is_open(GROUP, 64, 2));
    }
}
