//! Whether the steps of a round touch disjoint memory, so that any order of them gives the same result.

use super::fault::Fault;
use super::memory::Home;
use super::shape::Shape;
use crate::schedule::{Buffer, Span, Step};

/// Which step wrote a cell last, and in which round.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Stamp {
    /// The round, from 1; 0 before any.
    round: u32,
    step: u32,
}

/// What one rank's rounds have touched.
pub struct Races {
    written: Vec<Stamp>,
    /// Per slot of scratch, the round in which a run that reaches over it was written, and that run.
    homes: Vec<(u32, Home, u32)>,
    round: u32,
}

/// The span that the step writes.
fn target(step: Step) -> Option<Span> {
    match step {
        Step::Send { .. } => None,
        Step::Recv { target, .. }
        | Step::RecvReduce { target, .. }
        | Step::Copy { target, .. }
        | Step::Reduce { target, .. } => Some(target),
    }
}

/// The spans that the step reads: the runs of a fold, otherwise one or none.
fn sources(step: Step) -> impl Iterator<Item = Span> {
    let (source, runs, apart) = match step {
        Step::Recv { target, .. } => (target, 0, 0),
        Step::Send { source, .. } | Step::RecvReduce { source, .. } | Step::Copy { source, .. } => (source, 1, 0),
        Step::Reduce { source, runs, target } => (source, runs, target.count),
    };
    (0..runs).map(move |run| Span { first: source.first + run * apart, ..source })
}

/// Whether source and target are the same bytes.
fn is_same(shape: &Shape, source: Span, target: Span) -> bool {
    let in_scratch = [source, target].map(|span| span.buffer == Buffer::Scratch);
    match in_scratch {
        [true, true] => source == target,
        [false, false] => shape.cell(source.buffer, source.first) == shape.cell(target.buffer, target.first),
        _ => false,
    }
}

/// Whether the step is a copy of bytes to where they are already, which does nothing.
pub fn is_idle(shape: &Shape, step: Step) -> bool {
    matches!(step, Step::Copy { source, target } if is_same(shape, source, target))
}

impl Races {
    pub fn new(shape: &Shape) -> Races {
        let n_scratch = shape.n_scratch as usize;
        let written = vec![Stamp::default(); shape.n_cells as usize + n_scratch];
        Races { written, homes: vec![(0, (0, 0), 0); n_scratch], round: 0 }
    }

    /// Checks the next round; its steps are known to fit the shape. An error names the step.
    pub fn check(&mut self, shape: &Shape, steps: &[Step]) -> Result<(), (usize, Fault)> {
        self.round += 1;
        for (index, step) in steps.iter().enumerate().filter(|(_, step)| !is_idle(shape, **step)) {
            let Some(target) = target(*step) else { continue };
            self.write(shape, index as u32, target).map_err(|other| (index, Fault::Race(steps[other])))?;
        }
        for (index, step) in steps.iter().enumerate().filter(|(_, step)| !is_idle(shape, **step)) {
            // A fold may read what it writes over, chunk by chunk; whatever else it overlaps is its own mistake.
            if matches!(*step, Step::RecvReduce { source, target, .. } if is_same(shape, source, target)) {
                continue;
            }
            for source in sources(*step) {
                self.read(shape, source).map_err(|other| match other == index {
                    true => (index, Fault::Overlap),
                    false => (index, Fault::Race(steps[other])),
                })?;
            }
        }
        Ok(())
    }

    fn cells(shape: &Shape, span: Span) -> std::ops::Range<usize> {
        let first = shape.cell(span.buffer, span.first + span.skip);
        first..first + span.count as usize
    }

    /// Notes a write; an error is the other step that writes there.
    fn write(&mut self, shape: &Shape, step: u32, span: Span) -> Result<(), usize> {
        for cell in Races::cells(shape, span) {
            if self.written[cell].round == self.round {
                return Err(self.written[cell].step as usize);
            }
            self.written[cell] = Stamp { round: self.round, step };
        }
        if span.buffer == Buffer::Scratch {
            self.meet(shape, span)?;
            for slot in span.first..span.end() {
                self.homes[slot as usize] = (self.round, (span.first, shape.base(span)), step);
            }
        }
        Ok(())
    }

    /// An error is the step that writes what is read.
    fn read(&self, shape: &Shape, span: Span) -> Result<(), usize> {
        if let Some(cell) = Races::cells(shape, span).find(|cell| self.written[*cell].round == self.round) {
            return Err(self.written[cell].step as usize);
        }
        if span.buffer == Buffer::Scratch { self.meet(shape, span) } else { Ok(()) }
    }

    /// Whether a run of another home was written in this round where the span's run reaches: where its bytes are within
    /// its slots depends on lengths, so the two may overlap.
    fn meet(&self, shape: &Shape, span: Span) -> Result<(), usize> {
        let home = (span.first, shape.base(span));
        let reached = &self.homes[span.first as usize..span.end() as usize];
        match reached.iter().find(|(round, other, _)| *round == self.round && *other != home) {
            Some((_, _, step)) => Err(*step as usize),
            None => Ok(()),
        }
    }
}
