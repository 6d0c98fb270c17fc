//! One rank's program: rounds of steps, and the numbers they were written for.

use super::cost::Load;
use super::groups::Groups;
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
    /// How many slots of scratch the steps use. Kept up by [`Program::round`].
    pub scratch: u32,
    /// Which ranks are near each other, for the rows that work in levels; `None` if nobody has said.
    groups: Option<Groups>,
    steps: Vec<Step>,
    round_ends: Vec<u32>,
}

impl Program {
    /// An empty program.
    ///
    /// # Panics
    ///
    /// When `me` or `root` is not below `size`.
    #[must_use]
    pub fn new(me: Rank, size: u32, root: Rank, chunks: u32) -> Program {
        assert!(me < size && root < size, "rank {me} and root {root} must be below the size, {size}");
        Program { me, size, root, chunks, scratch: 0, groups: None, steps: Vec::new(), round_ends: Vec::new() }
    }

    /// The same program with groups of ranks that are near each other, before anything is written.
    ///
    /// # Panics
    ///
    /// When they are groups of another number of ranks.
    #[must_use]
    pub fn with_groups(self, groups: Groups) -> Program {
        assert!(groups.size() == self.size, "groups of {} ranks for a program of {}", groups.size(), self.size);
        Program { groups: Some(groups), ..self }
    }

    /// The same program, which needs to know of no groups any more.
    #[must_use]
    pub fn written(self) -> Program {
        Program { groups: None, ..self }
    }

    /// Which ranks are near each other; [`Groups::assumed`] if nobody has said.
    #[must_use]
    pub fn groups(&self) -> Groups {
        self.groups.clone().unwrap_or_else(|| Groups::assumed(self.size))
    }

    /// Appends a round. A round without steps is not kept.
    pub fn round(&mut self, steps: impl IntoIterator<Item = Step>) {
        let before = self.steps.len();
        self.steps.extend(steps);
        if self.steps.len() > before {
            self.round_ends.push(u32::try_from(self.steps.len()).expect("fewer than 2^32 steps"));
            self.scratch = self.steps[before..].iter().map(|step| step.scratch_end()).fold(self.scratch, u32::max);
        }
    }

    /// Appends rounds from steps that carry a time: steps of equal time share a round, in the order given.
    ///
    /// When both ends of every message carry the same time, which no later message between the two undercuts, programs
    /// written so can be run in the order of time: they cannot deadlock.
    pub fn timeline(&mut self, mut steps: Vec<(u32, Step)>) {
        steps.sort_by_key(|(time, _)| *time);
        for round in steps.chunk_by(|a, b| a.0 == b.0) {
            self.round(round.iter().map(|(_, step)| *step));
        }
    }

    /// How many rounds there are.
    #[must_use]
    pub fn n_rounds(&self) -> usize {
        self.round_ends.len()
    }

    /// The steps of one round.
    ///
    /// # Panics
    ///
    /// When there is no such round.
    #[must_use]
    pub fn steps_of(&self, round: usize) -> &[Step] {
        let first = if round == 0 { 0 } else { self.round_ends[round - 1] as usize };
        &self.steps[first..self.round_ends[round] as usize]
    }

    /// The same program with another step in one place. How much scratch it has stays as it was.
    ///
    /// # Panics
    ///
    /// When there is no such step.
    #[must_use]
    pub fn with_step(&self, round: usize, index: usize, step: Step) -> Program {
        assert!(index < self.steps_of(round).len(), "round {round} has no step {index}");
        let mut program = self.clone();
        let first = self.round_ends[round] as usize - self.steps_of(round).len();
        program.steps[first + index] = step;
        program
    }

    /// All rounds, in order.
    pub fn rounds(&self) -> impl ExactSizeIterator<Item = &[Step]> {
        (0..self.n_rounds()).map(|round| self.steps_of(round))
    }

    /// What the rank does, of a message of `whole` chunks. Of what goes out and what comes in the greater counts.
    #[must_use]
    pub fn load(&self, whole: f64) -> Load {
        let (mut out, mut into) = (Load::default(), Load::default());
        for step in &self.steps {
            let part = f64::from(step.count()) / whole;
            match *step {
                Step::Send { .. } => (out.messages, out.sent) = (out.messages + 1.0, out.sent + part),
                Step::Recv { .. } => (into.messages, into.sent) = (into.messages + 1.0, into.sent + part),
                Step::RecvReduce { .. } => {
                    (into.messages, into.sent) = (into.messages + 1.0, into.sent + part);
                    into.folded += part;
                }
                Step::Copy { .. } => out.copied += part,
                Step::Reduce { runs, .. } => into.folded += part * f64::from(runs.saturating_sub(1)),
            }
        }
        let (messages, sent) = (out.messages.max(into.messages), out.sent.max(into.sent));
        Load { messages, sent, folded: into.folded, copied: out.copied }
    }

    /// The rank `distance` places after this one (before it, when negative), around the end.
    #[must_use]
    pub fn peer(&self, distance: i64) -> Rank {
        (i64::from(self.me) + distance).rem_euclid(i64::from(self.size)) as Rank
    }

    /// How far this rank comes after the root, around the end. The root's place is 0.
    #[must_use]
    pub fn place(&self) -> u32 {
        (self.me + (self.size - self.root)) % self.size
    }

    /// The rank at a place, counted from the root around the end.
    #[must_use]
    pub fn rank_at(&self, place: u32) -> Rank {
        ((u64::from(self.root) + u64::from(place)) % u64::from(self.size)) as Rank
    }
}
