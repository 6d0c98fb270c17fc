//! One rank's program: rounds of steps, and the numbers they were written for.

use super::step::{Rank, Step};

/// One rank's rounds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// The rank whose program this is.
    pub me: Rank,
    /// How many ranks take part.
    pub size: u32,
    /// The root, where the collective has one; otherwise 0.
    pub root: Rank,
    /// How many chunks the message is cut into.
    pub chunks: u32,
    /// How many slots of scratch the steps use.
    pub scratch: u32,
    steps: Vec<Step>,
    round_ends: Vec<u32>,
}

impl Program {
    /// An empty program.
    #[must_use]
    pub fn new(me: Rank, size: u32, root: Rank, chunks: u32) -> Program {
        assert!(me < size && root < size, "rank {me} and root {root} must be below the size, {size}");
        Program { me, size, root, chunks, scratch: 0, steps: Vec::new(), round_ends: Vec::new() }
    }

    /// Appends a round. A round without steps is not kept.
    pub fn round(&mut self, steps: impl IntoIterator<Item = Step>) {
        let before = self.steps.len();
        self.steps.extend(steps);
        if self.steps.len() > before {
            self.round_ends.push(u32::try_from(self.steps.len()).expect("fewer than 2^32 steps"));
        }
    }

    /// How many rounds there are.
    #[must_use]
    pub fn n_rounds(&self) -> usize {
        self.round_ends.len()
    }

    /// The steps of one round.
    #[must_use]
    pub fn steps_of(&self, round: usize) -> &[Step] {
        let first = if round == 0 { 0 } else { self.round_ends[round - 1] as usize };
        &self.steps[first..self.round_ends[round] as usize]
    }

    /// All rounds, in order.
    pub fn rounds(&self) -> impl ExactSizeIterator<Item = &[Step]> {
        (0..self.n_rounds()).map(|round| self.steps_of(round))
    }
}
