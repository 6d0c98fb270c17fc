//! Where a step reads or writes: runs of chunks in one of a rank's three buffers.

/// Which of a rank's three buffers a span lies in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Buffer {
    /// What the rank brings. In place, it may be part or all of the output. No step writes to it.
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
/// first slot's start). In the input and output `like` equals `first`. Where a rank has a single block, its number is 0
/// there and its length that of the rank's own block; in an all-to-all a slot is as long as a block of the output.
///
/// A part of a run of scratch is addressed by `skip`: the run that starts at slot `first` holds chunks `like - skip`,
/// `like - skip + 1`, ..., packed, and the span is what follows the first `skip` of them. Its first byte is therefore
/// the start of slot `first` plus the lengths of chunks `like - skip .. like`. In the input and output `skip` is 0.
///
/// ```
/// use paceline_comm::schedule::{output, scratch};
///
/// let run = scratch(2, 5).run(4); // chunks 5, 6, 7 and 8, packed from the start of slot 2
/// let part = run.part(1, 2); // chunks 6 and 7, where they lie
/// assert_eq!((part.first, part.skip, part.like, part.count), (2, 1, 6, 2));
/// assert_eq!(output(3).run(4).part(1, 2), output(4).run(2));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Span {
    /// The buffer.
    pub buffer: Buffer,
    /// The first chunk (in scratch: the slot at whose start the run begins).
    pub first: u32,
    /// In scratch, how many chunks of the run come before this span; elsewhere 0.
    pub skip: u32,
    /// How many chunks.
    pub count: u32,
    /// The message chunk whose length the first one has.
    pub like: u32,
}

/// Chunk `chunk` of the input.
#[must_use]
pub const fn input(chunk: u32) -> Span {
    Span { buffer: Buffer::Input, first: chunk, skip: 0, count: 1, like: chunk }
}

/// Chunk `chunk` of the output.
#[must_use]
pub const fn output(chunk: u32) -> Span {
    Span { buffer: Buffer::Output, first: chunk, skip: 0, count: 1, like: chunk }
}

/// Slot `slot` of the scratch, holding something as long as chunk `like` of the message.
#[must_use]
pub const fn scratch(slot: u32, like: u32) -> Span {
    Span { buffer: Buffer::Scratch, first: slot, skip: 0, count: 1, like }
}

impl Span {
    /// The run of `count` chunks that starts where this span starts.
    #[must_use]
    pub const fn run(self, count: u32) -> Span {
        Span { count, ..self }
    }

    /// The `count` chunks that come after the first `offset` chunks of this span, where they lie.
    #[must_use]
    pub const fn part(self, offset: u32, count: u32) -> Span {
        let (first, skip) = match self.buffer {
            Buffer::Scratch => (self.first, self.skip + offset),
            Buffer::Input | Buffer::Output => (self.first + offset, self.skip),
        };
        Span { buffer: self.buffer, first, skip, count, like: self.like + offset }
    }

    /// The number after the last chunk or slot that the span reaches.
    #[must_use]
    pub const fn end(self) -> u32 {
        self.first.saturating_add(self.skip).saturating_add(self.count)
    }
}
