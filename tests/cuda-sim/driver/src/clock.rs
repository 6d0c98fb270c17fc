//! Vector clocks: what an operation knows to have happened before it.

use std::collections::BTreeMap;

/// For each stream, how many of its operations came before.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Clock(BTreeMap<usize, u64>);

impl Clock {
    /// One more operation of `stream`. Returns its number, from 1.
    pub fn tick(&mut self, stream: usize) -> u64 {
        let count = self.0.entry(stream).or_insert(0);
        *count += 1;
        *count
    }

    /// All that came before either.
    pub fn join(&mut self, other: &Clock) {
        for (stream, count) in &other.0 {
            let mine = self.0.entry(*stream).or_insert(0);
            *mine = (*mine).max(*count);
        }
    }

    /// Whether operation `nth` of `stream` came before.
    pub fn covers(&self, stream: usize, nth: u64) -> bool {
        self.0.get(&stream).is_some_and(|count| *count >= nth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_joined_is_covered() {
        let (mut one, mut other) = (Clock::default(), Clock::default());
        assert_eq!((one.tick(1), one.tick(1), other.tick(2)), (1, 2, 1));
        assert!(one.covers(1, 2) && !one.covers(1, 3) && !one.covers(2, 1));
        other.join(&one);
        assert!(other.covers(1, 2) && other.covers(2, 1) && !one.covers(2, 1));
    }
}
