//! Small calls over the boards of one host: what a `direct` row does, without frames.
//!
//! Every rank publishes what it brings, once, and takes what it needs from the others' boards. The result is the `direct`
//! row's, bit for bit: reductions fold in rank order. That row's program is the proof, and what runs where there are no
//! boards.

use std::ops::Range;

use paceline_transport::{Board, Endpoint, Heading};
use smallvec::SmallVec;

use super::lane::ELEMENT_BYTES_MAX;
use super::memory::Memory;
use super::plan::SharedPlan;
use super::stamp::Stamps;
use super::walk::{Fault, FaultCause};
use crate::collective::Collective;
use crate::reduce::ReduceOp;
use crate::schedule::Buffer;

/// Ranks up to which an exchange takes no memory of its own.
const RANKS_INLINE: usize = 8;

/// What one rank does in an exchange. Ranges are in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Posting {
    /// What it publishes, of its input.
    publishes: Range<usize>,
    /// Whom it takes from.
    sources: Range<usize>,
    /// The length of each one's message.
    message: usize,
    /// What it takes of each one's message.
    takes: Range<usize>,
    /// The same of its own input, if that is part of its result.
    own: Option<Range<usize>>,
    /// Whether the parts are folded; otherwise they lie in the output, rank by rank, `stride` apart.
    folds: bool,
    stride: usize,
}

/// The longest message that a rank publishes in a call of `bytes`: the vector, or the blocks of all ranks together.
pub(crate) fn published_bytes(collective: Collective, size: usize, bytes: usize) -> usize {
    match collective {
        Collective::AllGather | Collective::Gather => bytes.div_ceil(size),
        Collective::Barrier => 0,
        _ => bytes,
    }
}

/// Whether a call of `bytes` fits on the boards.
pub(crate) fn fits(collective: Collective, size: usize, bytes: usize) -> bool {
    published_bytes(collective, size, bytes) <= Board::longest(size)
}

impl Posting {
    /// A turn in which this rank publishes nothing and waits for nobody.
    pub(super) fn nothing() -> Posting {
        let (publishes, sources, takes) = (0..0, 0..0, 0..0);
        Posting { publishes, sources, message: 0, takes, own: None, folds: false, stride: 0 }
    }

    /// The part of rank `me` of `size` in a call with this root, whose vector or block has `bytes`.
    pub(crate) fn new(collective: Collective, (me, size, root): (usize, usize, usize), bytes: usize) -> Posting {
        use Collective::{
            AllGather, AllReduce, AllToAll, Barrier, Broadcast, Gather, Recv, Reduce, ReduceScatter, Scatter, Send,
            SendRecv,
        };
        let (is_root, whole, all, block) = (me == root, 0..bytes, 0..size * bytes, me * bytes..(me + 1) * bytes);
        let (everyone, only_root, nobody, nothing) = (0..size, root..root + 1, 0..0, 0..0);
        let (publishes, sources, takes, own) = match collective {
            AllReduce | AllGather => (whole.clone(), everyone, whole.clone(), Some(whole)),
            Reduce | Gather if is_root => (nothing, everyone, whole.clone(), Some(whole)),
            Reduce | Gather => (whole, nobody, nothing, None),
            Broadcast if is_root => (whole.clone(), nobody, nothing, Some(whole)),
            Broadcast => (nothing, only_root, whole, None),
            Scatter if is_root => (all, nobody, nothing, Some(block)),
            Scatter => (nothing, only_root, block, None),
            ReduceScatter | AllToAll => (all, everyone, block.clone(), Some(block)),
            Barrier => (nothing.clone(), everyone, nothing, None),
            Send | Recv | SendRecv => unreachable!("messages have no direct row"),
        };
        let stride = if matches!(collective, AllGather | Gather | AllToAll) { bytes } else { 0 };
        let folds = collective.reduces() && own.is_some();
        let message = if matches!(collective, Scatter | ReduceScatter | AllToAll) { size * bytes } else { takes.len() };
        Posting { publishes, sources, message, takes, own, folds, stride }
    }
}

/// A call's place among those over the boards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    /// How many went before.
    pub(crate) number: u64,
    /// A digest of all collectives that went before, over the boards or not.
    pub(crate) history: u64,
}

/// How far one rank has come in an exchange.
#[derive(Debug)]
pub(crate) struct Exchange {
    turn: Turn,
    published: bool,
    /// Bytes of the result that are folded.
    folded: usize,
    pub(super) done: bool,
    /// The ranks that it waits for.
    awaits: SmallVec<[u32; RANKS_INLINE]>,
}

impl Exchange {
    pub(crate) fn new(turn: Turn) -> Exchange {
        Exchange { turn, published: false, folded: 0, done: false, awaits: SmallVec::new() }
    }

    /// The ranks that it waits for.
    pub(super) fn awaits(&self) -> impl Iterator<Item = usize> {
        self.awaits.iter().map(|rank| *rank as usize)
    }

    /// Moves on as far as it goes now; whether anything moved.
    #[inline]
    pub(super) fn progress(
        &mut self,
        (plan, posting): (&SharedPlan, &Posting),
        memory: &Memory,
        stamps: &Stamps,
        endpoint: &mut Endpoint,
    ) -> Result<bool, Fault> {
        let me = endpoint.me();
        let board = endpoint.board().expect("all ranks have agreed that there are boards");
        // Earlier calls come first, and end first.
        if self.done || board.turn() != self.turn.number {
            return Ok(false);
        }
        let mut moved = false;
        if !self.published {
            if let Some(rank) = board.crowded_by(posting.publishes.len()) {
                self.awaits = SmallVec::from_elem(rank as u32, 1);
                return Ok(false);
            }
            // SAFETY: nothing writes the input but the end of this exchange, and `read` panics beyond the buffer.
            let message = unsafe { memory.read(Buffer::Input, posting.publishes.clone()) };
            endpoint.publish(Heading { stamp: stamps.own(), history: self.turn.history }, message);
            (self.published, moved) = (true, true);
        }
        let board = endpoint.board().expect("as above");
        self.awaits.clear();
        let mut there = posting.takes.len();
        for rank in posting.sources.clone().filter(|rank| *rank != me) {
            let fault = |cause| Fault { peer: rank, round: 0, step: rank, cause };
            match board.heading(rank) {
                None => self.awaits.push(rank as u32),
                Some(theirs) if theirs.stamp != stamps.own() => {
                    return Err(fault(FaultCause::Stamp { theirs: theirs.stamp }));
                }
                Some(theirs) if theirs.history != self.turn.history => return Err(fault(FaultCause::History)),
                Some(_) => {
                    let bytes = take(board, rank, posting, memory);
                    if bytes < posting.takes.len() {
                        self.awaits.push(rank as u32);
                    }
                    there = there.min(bytes);
                    continue;
                }
            }
            there = 0;
        }
        if posting.folds && there > self.folded {
            fold(board, me, plan, posting, memory, self.folded..there);
            (self.folded, moved) = (there, true);
        }
        if !self.awaits.is_empty() {
            return Ok(moved);
        }
        if !posting.folds {
            keep_own(me, posting, memory);
        }
        board.finish();
        self.done = true;
        Ok(true)
    }
}

/// Takes what there is of a rank's message; how many bytes that is.
#[inline]
fn take(board: &mut Board, rank: usize, posting: &Posting, memory: &Memory) -> usize {
    let bytes = posting.takes.len();
    if posting.folds {
        let there = board.has(rank, posting.message, &posting.takes);
        // Whole elements, whatever their size: all divide the largest.
        return if there == bytes { there } else { there & !(ELEMENT_BYTES_MAX - 1) };
    }
    let place = rank * posting.stride;
    // SAFETY: nobody else touches the output, what of it is input has been published, and `write` panics beyond it.
    let target = unsafe { memory.write(Buffer::Output, place..place + bytes) };
    if board.take(rank, posting.message, &posting.takes, target) { bytes } else { 0 }
}

/// Puts this rank's own part where it belongs in the output.
#[inline]
fn keep_own(me: usize, posting: &Posting, memory: &Memory) {
    let Some(own) = &posting.own else { return };
    let place = me * posting.stride;
    let source = memory.address(Buffer::Input, own).cast_const();
    let target = memory.address(Buffer::Output, &(place..place + own.len()));
    if !std::ptr::eq(source, target) {
        // SAFETY: `address` has checked both ranges, which are the same (skipped) or, in two buffers, disjoint; in place,
        // all_to_all's blocks are the same.
        unsafe { std::ptr::copy_nonoverlapping(source, target, own.len()) };
    }
}

/// Folds some bytes of the result: they have come from all ranks.
#[inline]
fn fold(board: &Board, me: usize, plan: &SharedPlan, posting: &Posting, memory: &Memory, bytes: Range<usize>) {
    let own = posting.own.as_ref().expect("who folds has a part of its own").start;
    let (from, len) = (bytes.start, bytes.len());
    let source = memory.address(Buffer::Input, &(own + from..own + bytes.end)).cast_const();
    let target = memory.address(Buffer::Output, &bytes);
    let of = |rank: usize| match rank == me {
        true => source,
        false => board.part(rank, posting.message, &posting.takes, from, len).as_ptr(),
    };
    let elements = len / plan.element_bytes;
    // SAFETY: `address` has checked source and target, which are the same or disjoint; `part` has checked that the others
    // are that long; nothing else touches any of them now.
    unsafe {
        match (posting.sources.len(), me) {
            (2, 0) => plan.kernel.combine(target, source, of(1), elements),
            (2, _) => plan.kernel.combine(target, of(0), source, elements),
            _ => {
                let sources: SmallVec<[*const u8; RANKS_INLINE]> = posting.sources.clone().map(of).collect();
                plan.kernel.fold(target, &sources, elements);
            }
        }
        if plan.kernel.op() == ReduceOp::Avg {
            plan.kernel.finish(plan.program.size, target, elements);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_brings_what() {
        let of = |collective, me| Posting::new(collective, (me, 3, 1), 8);
        let reduce = of(Collective::Reduce, 0);
        assert_eq!((reduce.publishes, reduce.sources.len(), reduce.own), (0..8, 0, None));
        let scatter = of(Collective::Scatter, 2);
        assert_eq!((scatter.publishes.len(), scatter.sources, scatter.takes), (0, 1..2, 16..24));
        let scatter = of(Collective::Scatter, 1);
        assert_eq!((scatter.publishes, scatter.own), (0..24, Some(8..16)));
        let all_to_all = of(Collective::AllToAll, 2);
        assert_eq!((all_to_all.takes, all_to_all.stride, all_to_all.folds), (16..24, 8, false));
        assert!(of(Collective::ReduceScatter, 0).folds && !of(Collective::Barrier, 0).folds);
    }

    #[test]
    fn what_fits_is_what_one_rank_publishes() {
        let longest = Board::longest(4);
        assert!(fits(Collective::AllGather, 4, 4 * longest) && !fits(Collective::AllReduce, 4, 4 * longest));
        assert!(fits(Collective::Barrier, 1000, 0));
    }
}
