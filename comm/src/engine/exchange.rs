//! Small calls over the boards of one host: what a `direct` row does, without frames.
//!
//! Every rank publishes what it brings, once, and takes what it needs from the others' boards. The result is the `direct`
//! row's, bit for bit: reductions fold in rank order. That row's program is the proof, and what runs where there are no
//! boards.

use std::ops::Range;

use paceline_transport::{Board, Endpoint, Heading, Stamp};
use smallvec::SmallVec;

use super::lane::ELEMENT_BYTES_MAX;
use super::memory::Memory;
use super::plan::SharedPlan;
pub(super) use super::posting::Posting;
use super::stamp::{Stamps, without_length};
use super::walk::{Fault, FaultCause};
use crate::reduce::ReduceOp;
use crate::schedule::Buffer;

/// Ranks up to which an exchange takes no memory of its own.
pub(super) const RANKS_INLINE: usize = 8;

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
    pub(super) turn: Turn,
    /// Bytes of the result that are folded.
    folded: usize,
    pub(super) done: bool,
    /// The ranks that it waits for.
    pub(super) awaits: SmallVec<[u32; RANKS_INLINE]>,
    /// Where in each rank's message this rank's part lies, as far as they have told.
    pub(super) told: SmallVec<[Option<Range<usize>>; 2]>,
    /// Whether some rank's message is too long for its board: the program runs.
    pub(super) unfit: bool,
}

impl Exchange {
    pub(crate) fn new(turn: Turn) -> Exchange {
        Exchange { turn, folded: 0, done: false, awaits: SmallVec::new(), told: SmallVec::new(), unfit: false }
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
        let board = endpoint.board().expect("all ranks have agreed that there are boards");
        // Earlier calls come first, and end first.
        if self.done || board.turn() != self.turn.number {
            return Ok(false);
        }
        if posting.pieces.is_some() {
            return self.progress_in_pieces((plan, posting), memory, stamps, endpoint);
        }
        let mut moved = false;
        if board.published() <= self.turn.number {
            board.begin(posting.swaps);
            if let Some(rank) = board.crowded_by(posting.publishes.len()) {
                self.awaits = SmallVec::from_elem(rank as u32, 1);
                return Ok(false);
            }
            // SAFETY: nothing writes the input but the end of this exchange, and `read` panics beyond the buffer.
            let message = unsafe { memory.read(Buffer::Input, posting.publishes.clone()) };
            endpoint.publish(Heading { stamp: stamps.own(), history: self.turn.history }, message);
            moved = true;
        }
        Ok(self.collect((plan, posting), memory, stamps, endpoint)? || moved)
    }

    /// Publishes what this rank brings before it is this exchange's turn, if that goes; whether it did.
    pub(super) fn publish_ahead(
        turn: Turn,
        posting: &Posting,
        memory: &Memory,
        stamps: &Stamps,
        endpoint: &mut Endpoint,
    ) -> bool {
        if posting.pieces.is_some() {
            return false;
        }
        // SAFETY: nothing writes the input but the end of this exchange, and `read` panics beyond the buffer.
        let message = unsafe { memory.read(Buffer::Input, posting.publishes.clone()) };
        endpoint.publish_ahead(Heading { stamp: stamps.own(), history: turn.history }, message)
    }

    /// Takes what there is of the others' messages, once this rank has published its own; whether anything moved.
    #[inline]
    pub(super) fn collect(
        &mut self,
        (plan, posting): (&SharedPlan, &Posting),
        memory: &Memory,
        stamps: &Stamps,
        endpoint: &mut Endpoint,
    ) -> Result<bool, Fault> {
        let me = endpoint.me();
        let mut moved = false;
        let board = endpoint.board().expect("as above");
        self.awaits.clear();
        let mut there = posting.takes.len();
        for rank in posting.sources.clone().filter(|rank| *rank != me) {
            let fault = |cause| Fault { peer: rank, round: 0, step: rank, cause };
            match board.heading(rank) {
                None => self.awaits.push(rank as u32),
                Some(theirs) if theirs.history != self.turn.history && earlier_difference(board, rank).is_some() => {
                    return Err(fault(FaultCause::History));
                }
                Some(theirs) if theirs.stamp != stamps.own() => {
                    return Err(fault(FaultCause::Stamp { theirs: theirs.stamp }));
                }
                Some(theirs) if theirs.history != self.turn.history => return Err(fault(FaultCause::History)),
                Some(_) => {
                    let (bytes, whole) = take(board, rank, posting, memory);
                    if !whole {
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
        endpoint.finish_turn();
        self.done = true;
        Ok(true)
    }
}

/// The last call before this one in which a rank made another than this rank, as far as the boards still show it.
#[cold]
pub(super) fn earlier_difference(board: &Board, rank: usize) -> Option<(Stamp, Stamp)> {
    let plain = |(mine, theirs)| (without_length(mine), without_length(theirs));
    board.earlier(rank).map(plain).find(|(mine, theirs)| mine != theirs)
}

/// Takes what there is of a rank's message; how many bytes that is, and whether it is all.
#[inline]
fn take(board: &mut Board, rank: usize, posting: &Posting, memory: &Memory) -> (usize, bool) {
    let (message, takes, place) = posting.part(rank);
    let bytes = takes.len();
    if posting.folds {
        let there = board.has(rank, message, &takes);
        // Whole elements, whatever their size: all divide the largest.
        return if there == bytes { (there, true) } else { (there & !(ELEMENT_BYTES_MAX - 1), false) };
    }
    // SAFETY: nobody else touches the output, what of it is input has been published, and `write` panics beyond it.
    let target = unsafe { memory.write(Buffer::Output, place..place + bytes) };
    let whole = board.take(rank, message, &takes, target);
    (if whole { bytes } else { 0 }, whole)
}

/// Puts this rank's own part where it belongs in the output.
#[inline]
pub(super) fn keep_own(me: usize, posting: &Posting, memory: &Memory) {
    let Some(own) = &posting.own else { return };
    let (_, _, place) = posting.part(me);
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
