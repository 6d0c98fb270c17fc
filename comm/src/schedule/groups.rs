//! Which ranks are near each other: groups of neighbours, in levels.

use alloc::sync::Arc;
use std::ops::Range;

use super::step::Rank;

/// Ranks in order, cut into groups of neighbours; groups of an inner level lie within those of the next.
///
/// The last level is that of hosts, as a rule: what passes between its groups is what costs. Rows that work in levels keep
/// that to the least.
///
/// ```
/// use paceline_comm::schedule::Groups;
///
/// let groups = Groups::of_sizes(&[3, 2]); // ranks 0, 1, 2 and ranks 3, 4
/// let hosts = groups.outermost().expect("there is a level");
/// assert_eq!((hosts.len(), hosts.largest(), hosts.group_of(3), hosts.range(1)), (2, 3, 1, 3..5));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Groups {
    size: u32,
    /// From the innermost level on: the first rank of each group.
    levels: Arc<[Box<[Rank]>]>,
}

/// One level of [`Groups`].
#[derive(Clone, Copy, Debug)]
pub struct Level<'a> {
    size: u32,
    firsts: &'a [Rank],
}

impl Groups {
    /// `size` ranks that are all alike far apart.
    #[must_use]
    pub fn flat(size: u32) -> Groups {
        Groups { size, levels: Arc::default() }
    }

    /// One level of groups of `group` ranks each.
    ///
    /// # Panics
    ///
    /// When `group` does not divide `size`.
    #[must_use]
    pub fn even(size: u32, group: u32) -> Groups {
        assert!(group > 0 && size.is_multiple_of(group), "a group of {group} must divide the size, {size}");
        Groups::of_sizes(&vec![group; (size / group) as usize])
    }

    /// One level of groups of these sizes.
    ///
    /// # Panics
    ///
    /// When a group is empty.
    #[must_use]
    pub fn of_sizes(sizes: &[u32]) -> Groups {
        Groups::flat(sizes.iter().sum()).around(sizes)
    }

    /// The same groups within larger ones of these sizes.
    ///
    /// # Panics
    ///
    /// When a group is empty, the sizes don't add up, or a larger group would cut a smaller one.
    #[must_use]
    pub fn around(self, sizes: &[u32]) -> Groups {
        let mut firsts = Vec::with_capacity(sizes.len());
        let mut next = 0;
        for size in sizes {
            assert!(*size > 0, "a group has at least one rank");
            firsts.push(next);
            next += size;
        }
        assert!(next == self.size, "groups of {next} ranks together, of {}", self.size);
        if let Some(inner) = self.outermost() {
            let cut = firsts.iter().find(|first| inner.firsts.binary_search(first).is_err());
            assert!(cut.is_none(), "the larger group from rank {} on cuts a smaller one", cut.expect("some"));
        }
        let levels = self.levels.iter().cloned().chain([firsts.into()]).collect();
        Groups { levels, ..self }
    }

    /// What is taken if nobody has said which ranks are near each other: groups as large as the largest divisor of the size
    /// that is not above its square root.
    #[must_use]
    pub fn assumed(size: u32) -> Groups {
        let group = (1..=size.isqrt()).rev().find(|group| size.is_multiple_of(*group));
        group.map_or_else(|| Groups::flat(size), |group| Groups::even(size, group))
    }

    /// How many ranks there are.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The levels, the innermost first.
    pub fn levels(&self) -> impl DoubleEndedIterator<Item = Level<'_>> + ExactSizeIterator {
        self.levels.iter().map(|firsts| Level { size: self.size, firsts })
    }

    /// The last level.
    #[must_use]
    pub fn outermost(&self) -> Option<Level<'_>> {
        self.levels().next_back()
    }

    /// The groups of the first level, each as one rank, in the levels beyond.
    #[must_use]
    pub fn as_ranks(&self) -> Groups {
        let Some(inner) = self.levels.first() else { return self.clone() };
        let number = |first: &Rank| inner.binary_search(first).expect("larger groups cut no smaller one") as Rank;
        let levels = self.levels[1..].iter().map(|firsts| firsts.iter().map(number).collect()).collect();
        Groups { size: inner.len() as u32, levels }
    }

    /// Ranks that stand for all: those of the first and of the largest group, and the first of the middle and of the last.
    #[must_use]
    pub fn examples(&self) -> Vec<Rank> {
        let Some(level) = self.outermost() else { return vec![0, self.size / 2, self.size - 1] };
        let largest = level.ranges().max_by_key(ExactSizeIterator::len).unwrap_or(0..1);
        let ends = [level.len() / 2, level.len() - 1].map(|group| level.range(group).start);
        let mut ranks: Vec<Rank> = level.range(0).chain(largest).chain(ends).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// The last level alone.
    #[must_use]
    pub fn outermost_only(&self) -> Groups {
        Groups { size: self.size, levels: self.levels.last().cloned().into_iter().collect() }
    }
}

impl Level<'_> {
    /// How many groups there are.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "there is always a group")]
    pub fn len(&self) -> u32 {
        self.firsts.len() as u32
    }

    /// The group that a rank is in.
    #[must_use]
    pub fn group_of(&self, rank: Rank) -> u32 {
        (self.firsts.partition_point(|first| *first <= rank) - 1) as u32
    }

    /// The ranks of a group.
    ///
    /// # Panics
    ///
    /// When there is no such group.
    #[must_use]
    pub fn range(&self, group: u32) -> Range<Rank> {
        let group = group as usize;
        self.firsts[group]..self.firsts.get(group + 1).copied().unwrap_or(self.size)
    }

    /// The ranks of all groups.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = Range<Rank>> {
        (0..self.len()).map(|group| self.range(group))
    }

    /// How many ranks the largest group has.
    #[must_use]
    pub fn largest(&self) -> u32 {
        self.ranges().map(|range| range.end - range.start).max().unwrap_or(1)
    }

    /// Whether all ranks are in one group, or none shares its group.
    #[must_use]
    pub fn is_trivial(&self) -> bool {
        self.firsts.len() <= 1 || self.firsts.len() == self.size as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_lie_within_each_other() {
        let groups = Groups::of_sizes(&[2, 2, 1, 3]).around(&[4, 4]);
        let [inner, outer] = groups.levels().collect::<Vec<_>>()[..] else { panic!("two levels") };
        assert_eq!((inner.len(), inner.largest(), outer.len(), outer.largest()), (4, 3, 2, 4));
        assert_eq!((0..8).map(|rank| inner.group_of(rank)).collect::<Vec<_>>(), [0, 0, 1, 1, 2, 3, 3, 3]);
        assert_eq!(groups.as_ranks(), Groups::of_sizes(&[2, 2]));
        assert_eq!(groups.as_ranks().as_ranks(), Groups::flat(2));
        assert_eq!(groups.outermost_only(), Groups::of_sizes(&[4, 4]));
        assert!(Groups::even(4, 4).outermost().unwrap().is_trivial());
        assert_eq!(Groups::assumed(12), Groups::even(12, 3));
    }

    #[test]
    #[should_panic(expected = "cuts a smaller one")]
    fn larger_groups_do_not_cut_smaller_ones() {
        let _ = Groups::of_sizes(&[2, 2]).around(&[3, 1]);
    }
}
