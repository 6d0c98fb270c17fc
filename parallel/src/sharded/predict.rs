//! Which unit is needed next: what followed the last two units when they followed each other before.
//!
//! Two, because a layer is followed by the next in the forward pass and by the one before in the backward pass. What is
//! predicted wrongly is gathered for nothing, or late; it is never wrong.

use std::collections::BTreeMap;

const NONE: usize = usize::MAX;

pub(super) struct Predictor {
    followers: BTreeMap<(usize, usize), usize>,
    before: usize,
    now: usize,
}

impl Predictor {
    pub(super) fn new() -> Predictor {
        Predictor { followers: BTreeMap::new(), before: NONE, now: NONE }
    }

    /// The unit that is needed now, if any has been.
    pub(super) fn now(&self) -> Option<usize> {
        (self.now != NONE).then_some(self.now)
    }

    /// A unit is needed.
    pub(super) fn observe(&mut self, unit: usize) {
        self.followers.insert((self.before, self.now), unit);
        (self.before, self.now) = (self.now, unit);
    }

    /// The units that will be needed next, at most `count` and none of them twice.
    pub(super) fn ahead(&self, count: usize) -> Vec<usize> {
        let (mut before, mut now, mut ahead) = (self.before, self.now, Vec::new());
        while ahead.len() < count {
            match self.followers.get(&(before, now)) {
                Some(next) if *next != self.now && !ahead.contains(next) => {
                    ahead.push(*next);
                    (before, now) = (now, *next);
                }
                _ => break,
            }
        }
        ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_pass_is_known() {
        let pass = [0, 1, 2, 3, 2, 1, 0];
        let mut predictor = Predictor::new();
        pass.iter().for_each(|unit| predictor.observe(*unit));
        for (place, unit) in pass.iter().enumerate() {
            predictor.observe(*unit);
            let next: Vec<usize> = pass.get(place + 1).copied().into_iter().collect();
            assert_eq!((predictor.now(), predictor.ahead(1)), (Some(*unit), next), "at {place}");
        }
        predictor.observe(0);
        assert_eq!(predictor.ahead(2), [1, 2]);
        assert_eq!(predictor.ahead(9), [1, 2, 3]);
    }
}
