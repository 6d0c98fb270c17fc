//! The vocabulary: five kinds of step over runs of chunks.

/// A rank's number in its communicator (or in the part of it that a view shows).
pub type Rank = u32;

/// Which of a rank's three buffers a span lies in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Buffer {
    /// What the rank brings. In place, it may be part or all of the output.
    Input,
    /// What the rank ends up with.
    Output,
    /// Room that the row asks for and that nobody sees afterwards.
    Scratch,
}

/// A run of `count` chunks, from `first` on, in one buffer.
///
/// Chunks are numbers, not bytes, so that one program serves every size and element type. Which bytes a chunk of the
/// input or output is follows from the call. A chunk of scratch is a slot wide enough for any chunk; what it holds is
/// as long as chunk `like` of the message (the slots of a run hold chunks `like`, `like + 1`, ..., packed from the
/// first slot's start). In the input and output `like` equals `first`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Span {
    /// The buffer.
    pub buffer: Buffer,
    /// The first chunk (in scratch: the first slot).
    pub first: u32,
    /// How many chunks.
    pub count: u32,
    /// The message chunk whose length the first one has.
    pub like: u32,
}

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
