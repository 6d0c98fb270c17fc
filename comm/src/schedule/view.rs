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
/// Rank `r` of the view is rank `ranks[r]`. Chunk `c` of the view is the run of `chunk_unit` chunks from
/// `chunk_first + c * chunk_unit` on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// Its ranks, in the view's order.
    pub ranks: Vec<Rank>,
    /// The first chunk of what the view calls chunk 0.
    pub chunk_first: u32,
    /// How many chunks make one chunk of the view.
    pub chunk_unit: u32,
    /// How many chunks the view has.
    pub n_chunks: u32,
    /// What the inner program finds where it reads its input. A phase that goes on from an earlier one reads the
    /// output, and must therefore be right in place.
    pub input: Buffer,
}

impl View {
    /// These ranks, with as many chunks of one chunk each, from chunk 0 on.
    #[must_use]
    pub fn of(ranks: Vec<Rank>) -> View {
        let n_chunks = ranks.len() as u32;
        View { ranks, chunk_first: 0, chunk_unit: 1, n_chunks, input: Buffer::Input }
    }

    /// The same ranks, with `n` chunks that start at `first` and are `unit` chunks long.
    #[must_use]
    pub fn chunks(self, n: u32, first: u32, unit: u32) -> View {
        View { n_chunks: n, chunk_first: first, chunk_unit: unit, ..self }
    }

    /// The same view, reading its input from that buffer.
    #[must_use]
    pub fn reading(self, input: Buffer) -> View {
        View { input, ..self }
    }

    fn span(&self, span: Span) -> Span {
        let buffer = if span.buffer == Buffer::Input { self.input } else { span.buffer };
        let like = self.chunk_first + span.like * self.chunk_unit;
        let count = span.count * self.chunk_unit;
        match buffer {
            Buffer::Scratch => {
                let first = span.first * self.chunk_unit;
                Span { buffer, first, skip: span.skip * self.chunk_unit, count, like }
            }
            Buffer::Input | Buffer::Output => Span { buffer, first: like, skip: 0, count, like },
        }
    }

    fn step(&self, step: Step) -> Step {
        step.map(|place| self.ranks[place as usize], |span| self.span(span))
    }
}

impl Program {
    /// Appends what `write` writes for the view's ranks and chunks, as rounds of this program.
    ///
    /// # Panics
    ///
    /// When this rank is not one of the view's.
    pub fn within(&mut self, view: &View, write: impl FnOnce(&mut Program)) {
        let inner = self.inner(view, write);
        for round in inner.rounds() {
            self.round(round.iter().map(|step| view.step(*step)));
        }
    }

    /// Appends what `write` writes for each of the views, which share no chunk: the first rounds of all together, then the
    /// second of all, and so on.
    ///
    /// Both ends of a message must be in rounds of equal number, or ranks of several views may wait for each other.
    ///
    /// # Panics
    ///
    /// When this rank is not one of some view's.
    pub fn side_by_side(&mut self, views: &[View], write: impl Fn(&mut Program)) {
        let inner: Vec<Program> = views.iter().map(|view| self.inner(view, &write)).collect();
        for round in 0..inner.iter().map(Program::n_rounds).max().unwrap_or(0) {
            let part = |(program, view): (&Program, &View)| -> Vec<Step> {
                let steps = if round < program.n_rounds() { program.steps_of(round) } else { &[] };
                steps.iter().map(|step| view.step(*step)).collect()
            };
            self.round(inner.iter().zip(views).flat_map(part).collect::<Vec<_>>());
        }
    }

    fn inner(&self, view: &View, write: impl FnOnce(&mut Program)) -> Program {
        let place = view.ranks.iter().position(|rank| *rank == self.me);
        let place = place.unwrap_or_else(|| panic!("rank {} is not one of the view's, {:?}", self.me, view.ranks));
        let mut inner = Program::new(place as u32, view.ranks.len() as u32, 0, view.n_chunks);
        write(&mut inner);
        inner
    }
}
