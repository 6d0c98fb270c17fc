//! A lane: one slice at a time of a call, and how far it has come.

use smallvec::SmallVec;

use super::plan::{Shapes, SharedPlan};

/// Steps of a round up to which a lane takes no memory of its own: small calls are made often.
const STEPS_INLINE: usize = 8;

/// One slice at a time of a call.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) number: usize,
    pub(super) slice: usize,
    pub(super) shapes: Shapes,
    pub(super) round: usize,
    /// Per step of the round, bytes moved, or `DONE`.
    pub(super) moved: SmallVec<[usize; STEPS_INLINE]>,
    /// Elements of which only a part has arrived.
    pub(super) parts: Vec<Part>,
    pub(super) finished: bool,
}

/// A step that has ended.
pub(super) const DONE: usize = usize::MAX;

/// The front of an element that a link has split, until the rest arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The step that receives it.
    pub(super) place: usize,
    pub(super) bytes: [u8; ELEMENT_BYTES_MAX],
    pub(super) len: usize,
}

/// The largest element.
pub(super) const ELEMENT_BYTES_MAX: usize = 16;

impl Lane {
    pub(super) fn new(plan: &SharedPlan, number: usize, slice: usize) -> Lane {
        let mut lane = Lane {
            number,
            slice,
            shapes: plan.shapes(slice),
            round: 0,
            moved: SmallVec::new(),
            parts: Vec::new(),
            finished: false,
        };
        lane.open_round(plan);
        lane
    }

    #[inline]
    /// Begins the present round.
    pub(super) fn open_round(&mut self, plan: &SharedPlan) {
        self.moved.clear();
        if self.round < plan.program.n_rounds() {
            self.moved.resize(plan.program.steps_of(self.round).len(), 0);
        }
    }
}
