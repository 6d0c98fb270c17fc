//! Part of a group and part of a message, made to look like whole ones: composition is a few calls.
//!
//! An algorithm that is written for a whole communicator and a whole message runs on a part of both through a view,
//! without knowing. The all-reduce in two levels is three calls: reduce-scatter within a group, all-reduce across the
//! groups on what is left, all-gather within the group.

use super::program::Program;
use super::span::{Buffer, Span};
use super::step::{Rank, Step};

/// Which ranks and chunks an inner program sees.
///
/// Rank `r` of the view is rank `rank_first + r * rank_step`. Chunk `c` of the view is the run of `chunk_unit` chunks
/// from `chunk_first + c * chunk_unit` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    /// The rank that the view calls 0.
    pub rank_first: Rank,
    /// How far apart its ranks are.
    pub rank_step: u32,
    /// How many ranks it has.
    pub size: u32,
    /// The first chunk of what the view calls chunk 0.
    pub chunk_first: u32,
    /// How many chunks make one chunk of the view.
    pub chunk_unit: u32,
    /// How many chunks the view has.
    pub n_chunks: u32,
    /// What the inner program finds where it reads its input. A phase that goes on from an earlier one reads the
    /// output, and must therefore be right in place.
    pub input: Buffer,
    /// The first slot of scratch that the inner program may use. Phases follow one another, so they may share.
    pub scratch_first: u32,
}

impl View {
    /// `size` ranks from `first` on, `step` apart, with as many chunks of one chunk each, from chunk 0 on.
    #[must_use]
    pub const fn ranks(first: Rank, step: u32, size: u32) -> View {
        View {
            rank_first: first,
            rank_step: step,
            size,
            chunk_first: 0,
            chunk_unit: 1,
            n_chunks: size,
            input: Buffer::Input,
            scratch_first: 0,
        }
    }

    /// The same ranks, with chunks that start at `first` and are `unit` chunks long.
    #[must_use]
    pub const fn chunks(self, first: u32, unit: u32) -> View {
        View { chunk_first: first, chunk_unit: unit, ..self }
    }

    /// The same view, reading its input from the output.
    #[must_use]
    pub const fn going_on(self) -> View {
        View { input: Buffer::Output, ..self }
    }

    fn span(&self, span: Span) -> Span {
        let buffer = if span.buffer == Buffer::Input { self.input } else { span.buffer };
        let like = self.chunk_first + span.like * self.chunk_unit;
        let count = span.count * self.chunk_unit;
        match buffer {
            Buffer::Scratch => {
                let first = self.scratch_first + span.first * self.chunk_unit;
                Span { buffer, first, skip: span.skip * self.chunk_unit, count, like }
            }
            Buffer::Input | Buffer::Output => Span { buffer, first: like, skip: 0, count, like },
        }
    }

    fn step(&self, step: Step) -> Step {
        let rank = |place: Rank| self.rank_first + place * self.rank_step;
        match step {
            Step::Send { to, source } => Step::Send { to: rank(to), source: self.span(source) },
            Step::Recv { from, target } => Step::Recv { from: rank(from), target: self.span(target) },
            Step::RecvReduce { from, source, target } => {
                Step::RecvReduce { from: rank(from), source: self.span(source), target: self.span(target) }
            }
            Step::Copy { source, target } => Step::Copy { source: self.span(source), target: self.span(target) },
            Step::Reduce { source, runs, target } => {
                Step::Reduce { source: self.span(source), runs, target: self.span(target) }
            }
        }
    }
}

impl Program {
    /// Appends what `write` writes for the view's ranks and chunks, as rounds of this program.
    ///
    /// # Panics
    ///
    /// When this rank is not one of the view's.
    pub fn within(&mut self, view: View, write: impl FnOnce(&mut Program)) {
        let place = self.me.wrapping_sub(view.rank_first) / view.rank_step;
        assert!(
            place < view.size && view.rank_first + place * view.rank_step == self.me,
            "rank {} is not one of the {} ranks from {} on, {} apart",
            self.me,
            view.size,
            view.rank_first,
            view.rank_step
        );
        let mut inner = Program::new(place, view.size, 0, view.n_chunks);
        write(&mut inner);
        for round in inner.rounds() {
            self.round(round.iter().map(|step| view.step(*step)));
        }
    }
}
