//! A program for ranks in another order: that of a program's places.
//!
//! Rows are written for ranks of which neighbours are near each other. Where they are not, the ranks are put in an order in
//! which they are, a row writes the program of each place, and the ranks at the places run these.

use super::program::Program;
use super::span::{Buffer, Span};
use super::step::Rank;
use crate::collective::Collective;

impl Program {
    /// The program of the rank at this place, where place *p* is rank `order[p]`.
    ///
    /// A vector's chunks are what they were. Blocks belong to ranks: the block of a place is its rank's, and runs of blocks are
    /// moved one by one. [`Row::may_be_placed`](crate::algorithm::Row::may_be_placed) says which rows that suits.
    ///
    /// # Panics
    ///
    /// When `order` doesn't hold each rank once.
    #[must_use]
    pub fn placed(&self, collective: Collective, order: &[Rank]) -> Program {
        assert!(order.len() == self.size as usize, "an order of {} ranks for {}", order.len(), self.size);
        let rank = |place: Rank| order[place as usize];
        let mut program = Program::new(rank(self.me), self.size, rank(self.root), self.chunks);
        let blocks = collective.has_blocks();
        for round in self.rounds() {
            let steps = round.iter().flat_map(|step| {
                let pieces = if blocks { step.count() } else { 1 };
                (0..pieces).map(move |piece| {
                    step.map(rank, |span| if blocks { block(span.part(piece, 1), collective, order) } else { span })
                })
            });
            program.round(steps.collect::<Vec<_>>());
        }
        program
    }
}

/// The block of a place, as the block of its rank.
fn block(span: Span, collective: Collective, order: &[Rank]) -> Span {
    use Collective as C;
    let is_single = matches!(
        (collective, span.buffer),
        (C::AllGather | C::Gather, Buffer::Input) | (C::ReduceScatter | C::Scatter, Buffer::Output)
    );
    if is_single {
        return span;
    }
    let like = order[span.like as usize];
    match span.buffer {
        Buffer::Scratch => Span { first: span.first + span.skip, skip: 0, like, ..span },
        Buffer::Input | Buffer::Output => Span { first: like, like, ..span },
    }
}
