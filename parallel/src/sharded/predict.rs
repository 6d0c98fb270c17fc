//! Which unit is needed next: what followed the last two units when they followed each other before.
//!
//! Two, because a layer is followed by the next in the forward pass and by the one before in the backward pass. What is
//! predicted wrongly is gathered for nothing, or late; it is never wrong.

use std::collections::BTreeMap;

/// A unit's turn in a pass.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Turn {
    pub(super) unit: usize,
    /// Whether it is in the step's last micro-batch, after which nothing follows.
    pub(super) is_last: bool,
}

#[derive(Default)]
pub(super) struct Predictor {
    followers: BTreeMap<(Option<Turn>, Option<Turn>), usize>,
    before: Option<Turn>,
    now: Option<Turn>,
}

impl Predictor {
    /// The unit whose turn it is.
    pub(super) fn now(&self) -> Option<usize> {
        self.now.map(|turn| turn.unit)
    }

    /// It is a unit's turn.
    pub(super) fn observe(&mut self, turn: Turn) {
        self.followers.insert((self.before, self.now), turn.unit);
        (self.before, self.now) = (self.now, Some(turn));
    }

    /// A step begins: what its first turns follow isn't the last step's end.
    pub(super) fn begin(&mut self) {
        (self.before, self.now) = (None, None);
    }

    /// The units whose turns come next, at most `count` and none of them twice.
    pub(super) fn ahead(&self, count: usize) -> Vec<usize> {
        let (mut before, mut now, mut ahead) = (self.before, self.now, Vec::new());
        while ahead.len() < count {
            match self.followers.get(&(before, now)) {
                Some(next) if Some(*next) != self.now() && !ahead.contains(next) => {
                    ahead.push(*next);
                    (before, now) = (now, now.map(|turn| Turn { unit: *next, ..turn }));
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

    /// Two micro-batches of four units: in the second step each turn is known, and that nothing follows the last one.
    #[test]
    fn the_second_step_is_known() {
        let pass = [0, 1, 2, 3, 2, 1];
        let step: Vec<Turn> =
            [false, true].into_iter().flat_map(|is_last| pass.map(|unit| Turn { unit, is_last })).collect();
        let mut predictor = Predictor::default();
        step.iter().for_each(|turn| predictor.observe(*turn));
        predictor.begin();
        for (place, turn) in step.iter().enumerate() {
            predictor.observe(*turn);
            let next: Vec<usize> = step.get(place + 1).map(|turn| turn.unit).into_iter().collect();
            assert_eq!((predictor.now(), predictor.ahead(1)), (Some(turn.unit), next), "at {place}");
        }
        predictor.begin();
        predictor.observe(step[0]);
        assert_eq!(predictor.ahead(2), [1, 2]);
        assert_eq!(predictor.ahead(9), [1, 2, 3]);
    }
}
