//! The vocabulary: five kinds of step over runs of chunks.

use super::span::{Buffer, Span};

/// A rank's number in its communicator (or in the part of it that a view shows).
pub type Rank = u32;

/// One thing a rank does in a round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Step {
    /// Send the bytes of `source` to rank `to`.
    Send {
        /// The receiver.
        to: Rank,
        /// What is sent.
        source: Span,
    },
    /// Receive from rank `from` into `target`, over whatever is there.
    Recv {
        /// The sender.
        from: Rank,
        /// Where it goes.
        target: Span,
    },
    /// Receive from rank `from`, combine with `source`, and write the result to `target`.
    ///
    /// `source` and `target` are as long as what arrives; they are the same span or disjoint. With the input as source
    /// and the output as target a reduction out of place needs no copy beforehand.
    RecvReduce {
        /// The sender.
        from: Rank,
        /// This rank's own contribution.
        source: Span,
        /// Where the result goes.
        target: Span,
    },
    /// Copy `source` over `target`, equally long. Where both are the same bytes (in place), nothing happens.
    Copy {
        /// What is copied.
        source: Span,
        /// Where it goes.
        target: Span,
    },
    /// Combine the runs of `source`, in order, in one pass, into `target`, over whatever is there.
    ///
    /// `source` is scratch and holds `runs` runs, each as long as `target`, each starting `target.count` slots after
    /// the one before. Narrow floats are rounded once, at the end.
    Reduce {
        /// The first run.
        source: Span,
        /// How many runs.
        runs: u32,
        /// Where the result goes.
        target: Span,
    },
}

impl Step {
    /// The same step between other ranks, over other spans.
    #[must_use]
    pub fn map(self, rank: impl Fn(Rank) -> Rank, span: impl Fn(Span) -> Span) -> Step {
        match self {
            Step::Send { to, source } => Step::Send { to: rank(to), source: span(source) },
            Step::Recv { from, target } => Step::Recv { from: rank(from), target: span(target) },
            Step::RecvReduce { from, source, target } => {
                Step::RecvReduce { from: rank(from), source: span(source), target: span(target) }
            }
            Step::Copy { source, target } => Step::Copy { source: span(source), target: span(target) },
            Step::Reduce { source, runs, target } => Step::Reduce { source: span(source), runs, target: span(target) },
        }
    }

    /// How many chunks the step moves.
    #[must_use]
    pub const fn count(self) -> u32 {
        match self {
            Step::Send { source, .. } => source.count,
            Step::Recv { target, .. }
            | Step::RecvReduce { target, .. }
            | Step::Copy { target, .. }
            | Step::Reduce { target, .. } => target.count,
        }
    }

    /// How many slots of scratch there must be for the step.
    #[must_use]
    pub fn scratch_end(self) -> u32 {
        let end = |span: Span| if span.buffer == Buffer::Scratch { span.end() } else { 0 };
        match self {
            Step::Send { source, .. } => end(source),
            Step::Recv { target, .. } => end(target),
            Step::RecvReduce { source, target, .. } | Step::Copy { source, target } => end(source).max(end(target)),
            Step::Reduce { source, runs, target } => {
                end(source.run(runs.saturating_mul(target.count))).max(end(target))
            }
        }
    }
}
