//! What can be wrong with a set of programs.

use std::fmt::{self, Display, Formatter};

use crate::schedule::{Buffer, Rank, Step};

/// Why a set of programs is not a proof, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckError {
    /// The rank whose program is wrong, or shows that another one is.
    pub rank: Rank,
    /// The step that is to blame, where one is.
    pub at: Option<Box<Place>>,
    /// What is wrong.
    pub fault: Fault,
}

/// A step of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The round, from 0.
    pub round: usize,
    /// The step in the round, from 0.
    pub index: usize,
    /// The step itself.
    pub step: Step,
}

/// What is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The programs do not belong together, or are not what the collective takes. Says how.
    Set(String),
    /// The step names a rank that does not exist, or its own.
    Peer(Rank),
    /// The span has no chunk.
    Empty,
    /// The span reaches chunk (or slot) `end - 1`, but there are `len`.
    Outside {
        /// The buffer.
        buffer: Buffer,
        /// The number after the last chunk that the span reaches.
        end: u64,
        /// How many chunks the rank has there.
        len: u32,
    },
    /// The span's lengths are not those of a run of message chunks.
    Like,
    /// The step writes to the input.
    WritesInput,
    /// The spans of the step, or of the message, differ in length. Both, as text.
    Lengths(String, String),
    /// Source and target of the step overlap without being the same.
    Overlap,
    /// A fold of fewer than two runs, or of runs that are not scratch.
    Runs,
    /// The step is not one that this collective has.
    Kind,
    /// Another step of the round writes what this one reads or writes. The other one.
    Race(Step),
    /// The step reads chunk or slot `0` of its span, which nobody has written.
    Unwritten(u32),
    /// The step folds contributions to different chunks. Both, as text.
    Mixed(String, String),
    /// The step counts a rank's contribution twice.
    Twice(Rank),
    /// The step waits forever: its peer waits in that round, or has ended (`None`).
    Deadlock(Rank, Option<usize>),
    /// A chunk of the output is not what it must be.
    Result {
        /// The chunk.
        chunk: u32,
        /// What it holds.
        holds: String,
        /// What it must hold.
        wanted: String,
    },
    /// A chunk of the output was folded in another order than on that rank, so its bits may differ.
    Order(u32, Rank),
    /// The rank may end before that one has begun.
    NotHeard(Rank),
    /// The set has more chunks, slots and ranks than can be checked.
    TooLarge,
}

impl Display for CheckError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank)?;
        if let Some(Place { round, index, step }) = self.at.as_deref() {
            write!(f, ", round {round}, step {index} ({step})")?;
        }
        write!(f, ": {}", self.fault)
    }
}

impl std::error::Error for CheckError {}

impl Display for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Set(how) => write!(f, "{how}"),
            Fault::Peer(peer) => write!(f, "there is no other rank {peer}"),
            Fault::Empty => write!(f, "a span of no chunks"),
            Fault::Outside { buffer, end, len } => {
                let buffer = format!("{buffer:?}").to_lowercase();
                write!(f, "reaches chunk {} of the {buffer}, where this rank has {len}", end.saturating_sub(1))
            }
            Fault::Like => write!(f, "the span's lengths are not those of a run of chunks of the message"),
            Fault::WritesInput => write!(f, "writes to the input, which is the caller's"),
            Fault::Lengths(one, other) => write!(f, "as long as {one} on one side and {other} on the other"),
            Fault::Overlap => write!(f, "source and target overlap without being the same"),
            Fault::Runs => write!(f, "folds fewer than two runs, or runs that do not start in slots of scratch"),
            Fault::Kind => write!(f, "the collective has no such step"),
            Fault::Race(other) => write!(f, "races with the step {other} of the same round"),
            Fault::Unwritten(chunk) => write!(f, "reads place {chunk} of its span, where nobody has written that"),
            Fault::Mixed(one, other) => write!(f, "folds {one} with {other}"),
            Fault::Twice(rank) => write!(f, "counts the contribution of rank {rank} twice"),
            Fault::Deadlock(peer, Some(round)) => {
                write!(f, "waits forever for rank {peer}, which waits in round {round}")
            }
            Fault::Deadlock(peer, None) => write!(f, "waits forever for rank {peer}, which has ended"),
            Fault::Result { chunk, holds, wanted } => {
                write!(f, "chunk {chunk} of the output ends as {holds}, but must be {wanted}")
            }
            Fault::Order(chunk, other) => {
                write!(f, "chunk {chunk} of the output is folded in another order than on rank {other}")
            }
            Fault::NotHeard(other) => write!(f, "may end before rank {other} has begun"),
            Fault::TooLarge => write!(f, "too many chunks, slots and ranks to check"),
        }
    }
}
