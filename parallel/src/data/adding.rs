//! In which order the gradients of a rank's micro-batches are added.

use std::ops::Range;

use crate::state::{Numbers, Segment};

/// In which order the gradients of a rank's micro-batches are added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Adding {
    /// One after the other.
    #[default]
    OneByOne,
    /// As a binary tree over the micro-batches. With [`Ordered`](super::hook::Ordered), which adds ranks so, a step's sums have
    /// the same bits on any number of ranks: where the first rank has the first micro-batches and so on, each a power of two
    /// of them, and as many as the others, with the same samples. Takes log2(micro-batches) + 1 more vectors as long as
    /// the gradients.
    AsTree,
}

/// Sums of 1, 2, 4 ... micro-batches that wait for those of as many more.
#[derive(Debug, Default)]
pub(super) struct Tree {
    levels: Vec<Numbers>,
    /// How many micro-batches were taken of each segment: where it has a one bit, the level of that number has a sum.
    taken: Vec<u64>,
}

impl Tree {
    pub(super) fn new(segments: usize) -> Tree {
        Tree { levels: Vec::new(), taken: vec![0; segments] }
    }

    /// Takes a micro-batch's gradients of a segment out of `gradients`.
    pub(super) fn take(&mut self, segment: usize, range: &Range<usize>, gradients: &mut Numbers) {
        let full = self.taken[segment].trailing_ones() as usize;
        self.taken[segment] += 1;
        for level in &self.levels[..full] {
            gradients.add_stretch(level, range.clone());
        }
        if self.levels.len() == full {
            self.levels.push(gradients.zeros_alike());
        }
        self.levels[full].take_stretch(gradients, range.clone());
    }

    /// Adds all that was taken to `gradients`, the last ones first.
    pub(super) fn give(&mut self, segments: &[Segment], gradients: &mut Numbers) {
        for (number, segment) in segments.iter().enumerate() {
            self.give_one(number, &segment.range, gradients);
        }
    }

    fn give_one(&mut self, segment: usize, range: &Range<usize>, gradients: &mut Numbers) {
        let taken = std::mem::take(&mut self.taken[segment]);
        for level in
            self.levels.iter().enumerate().filter(|(number, _)| taken >> number & 1 == 1).map(|(_, level)| level)
        {
            gradients.add_stretch(level, range.clone());
        }
    }

    /// Forgets what was taken.
    pub(super) fn clear(&mut self) {
        self.taken.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a tree makes of single numbers, one for each micro-batch.
    fn sum(numbers: &[f64]) -> f64 {
        let (mut tree, mut gradients) = (Tree::new(1), Numbers::F64(vec![0.0; 3]));
        for number in numbers {
            let Numbers::F64(at) = &mut gradients else { unreachable!() };
            assert_eq!(at[..], [0.0; 3]);
            at[1] += number;
            tree.take(0, &(1..2), &mut gradients);
        }
        tree.give_one(0, &(1..2), &mut gradients);
        assert_eq!((gradients.get(0), gradients.get(2), tree.taken[0]), (0.0, 0.0, 0));
        gradients.get(1)
    }

    #[test]
    fn neighbours_are_added_first() {
        let big = (1u64 << 53) as f64;
        assert_eq!(sum(&[]), 0.0);
        assert_eq!(sum(&[3.0]), 3.0);
        assert_eq!(sum(&[big, 1.0, 1.0, -big]), (big + 1.0) + (1.0 - big));
        assert_ne!(sum(&[big, 1.0, 1.0, -big]), ((big + 1.0) + 1.0) - big);
        let eight = [big, 1.0, -big, 1.0, 0.5, big, 1.0, -big];
        let half = |at: usize| (eight[at] + eight[at + 1]) + (eight[at + 2] + eight[at + 3]);
        assert_eq!(sum(&eight), half(0) + half(4));
        assert_eq!(sum(&[1.0, 2.0, 4.0, 8.0, 16.0]), 31.0);
    }
}
