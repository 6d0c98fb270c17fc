//! A call as data: what is asked for, over which buffers, and whether it can be meant.

mod check;
mod needs;
#[cfg(feature = "cuda")]
mod touched;

use std::time::Duration;

use crate::collective::Collective;
use crate::reduce::{DataType, ReduceOp};

pub(crate) use check::Sound;

/// One call of a collective, without its communicator.
///
/// Typed methods of [`crate::Communicator`] build these; programs that learn types and operators at run time may build
/// them themselves and pass them to [`crate::Communicator::run`].
#[derive(Clone, Copy, Debug)]
pub struct Request<'a, B = Buffers<'a>> {
    /// What to do.
    pub collective: Collective,
    /// What the elements are.
    pub data_type: DataType,
    /// How they are combined, where they are.
    pub op: ReduceOp,
    /// The root; the peer to send to, for `Send` and `SendRecv`; the peer to receive from, for `Recv`.
    pub root: usize,
    /// The peer to receive from, for `SendRecv`.
    pub source: usize,
    /// Elements of the vector (`all_reduce`, `reduce`, `broadcast`, `send`, `recv`), or of one block (all others).
    /// `send_recv` doesn't look at it: its lengths are those of the buffers.
    pub count: usize,
    /// Where the elements are and go.
    pub buffers: B,
    /// Blocks of different lengths, for the collectives that have blocks. Then `count` is not looked at.
    pub counts: Option<Counts<'a>>,
}

/// The bytes of a call. Elements need no alignment.
#[derive(Debug)]
pub enum Buffers<'a> {
    /// Input and output apart.
    Separate {
        /// What this rank brings. May be empty where it brings nothing.
        input: &'a [u8],
        /// Where the result goes. May be empty where there is none.
        output: &'a mut [u8],
    },
    /// One buffer for both, as large as the larger. The smaller lies in its place inside: this rank's block.
    InPlace(&'a mut [u8]),
}

impl Buffers<'_> {
    /// Where input and output begin, as numbers.
    pub(crate) fn addresses(&self) -> (usize, usize) {
        match self {
            Buffers::Separate { input, output } => (input.as_ptr().addr(), output.as_ptr().addr()),
            Buffers::InPlace(buffer) => (buffer.as_ptr().addr(), buffer.as_ptr().addr()),
        }
    }

    fn places(&mut self) -> Places {
        match self {
            Buffers::Separate { input, output } => {
                Places::Separate { input: (input.as_ptr(), input.len()), output: (output.as_mut_ptr(), output.len()) }
            }
            Buffers::InPlace(buffer) => Places::InPlace((buffer.as_mut_ptr(), buffer.len())),
        }
    }
}

/// The buffers of a call by address and length, in whatever memory they are: nothing is read or written through this.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Places {
    /// Input and output apart.
    Separate { input: (*const u8, usize), output: (*mut u8, usize) },
    /// One buffer for both.
    InPlace((*mut u8, usize)),
}

/// Lengths and places of uneven blocks, in elements, one per rank.
///
/// `all_gather` and `gather` read `recv_*`, the same on every rank; `scatter` and `reduce_scatter` read `send_*`, the
/// same on every rank; `all_to_all` reads both. Offsets that are left empty are the sums of the counts before. Offsets are
/// each rank's own; that of an empty block is not looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts<'a> {
    /// Elements for each rank.
    pub send_counts: &'a [usize],
    /// Where they start in the input.
    pub send_offsets: &'a [usize],
    /// Elements from each rank.
    pub recv_counts: &'a [usize],
    /// Where they go in the output.
    pub recv_offsets: &'a [usize],
}

/// What may differ from call to call.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CallOptions {
    /// How long the call may take; the communicator's timeout where `None`.
    pub timeout: Option<Duration>,
    /// The algorithm's name, instead of the choice by price. The same on every rank.
    pub algorithm: Option<String>,
}

impl<'a, B> Request<'a, B> {
    /// A request with root 0, source 0, the sum, and blocks of one length.
    #[must_use]
    pub fn new(collective: Collective, data_type: DataType, count: usize, buffers: B) -> Self {
        Request { collective, data_type, op: ReduceOp::Sum, root: 0, source: 0, count, buffers, counts: None }
    }

    /// The same with another operator.
    #[must_use]
    pub fn op(self, op: ReduceOp) -> Self {
        Request { op, ..self }
    }

    /// The same with another root, or peer.
    #[must_use]
    pub fn root(self, root: usize) -> Self {
        Request { root, ..self }
    }

    /// The same with another peer to receive from.
    #[must_use]
    pub fn source(self, source: usize) -> Self {
        Request { source, ..self }
    }

    /// The same with blocks of different lengths.
    #[must_use]
    pub fn counts(self, counts: Counts<'a>) -> Self {
        Request { counts: Some(counts), ..self }
    }

    /// The same call over other buffers.
    pub(crate) fn over<C>(self, buffers: impl FnOnce(B) -> C) -> Request<'a, C> {
        let Request { collective, data_type, op, root, source, count, buffers: old, counts } = self;
        Request { collective, data_type, op, root, source, count, buffers: buffers(old), counts }
    }
}
