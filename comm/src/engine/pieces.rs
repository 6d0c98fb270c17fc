//! Calls over the boards whose messages are not one run of the input, or of a length that only their sender knows.
//!
//! A message that consists of pieces is put together before it is published. In an uneven all_to_all no rank knows what the
//! others send each other: the heading says how long the message is, and in front of it stands where each rank's part begins
//! and ends. A rank whose message is too long for its board says that instead; then all ranks run the call's program.

use paceline_transport::{Board, Endpoint, Heading, Stamp};
use smallvec::SmallVec;

use super::exchange::{Exchange, keep_own};
use super::memory::Memory;
use super::plan::SharedPlan;
use super::posting::Posting;
use super::stamp::{Stamps, length_in, with_length, without_length};
use super::walk::{Fault, FaultCause};
use crate::schedule::Buffer;

/// Messages up to which putting them together takes no memory.
const MESSAGE_INLINE: usize = 512;
type Message = SmallVec<[u8; MESSAGE_INLINE]>;

const WORD: usize = size_of::<u32>();
/// In place of where a part begins: the message is too long for the board.
const TOO_LONG: u32 = u32::MAX;

/// Bytes for each other rank up to which messages that tell their parts go over the boards. They are copied once more than
/// others on the way, so that links carry longer ones as fast or faster.
const TELLS_FOR_EACH: usize = 2 << 10;

/// Bytes of the table in front of a message that tells where its parts lie.
fn table_bytes(size: usize) -> usize {
    (size + 1) * WORD
}

/// How long the message is, and whether it has all pieces: otherwise it is the table, which says that it is too long.
fn length(posting: &Posting, size: usize) -> (usize, bool) {
    let total: usize = posting.pieces.iter().flatten().map(|piece| piece.len()).sum();
    if !posting.tells {
        return (total, true);
    }
    let front = table_bytes(size);
    let fits = front + total <= Board::longest(size) && total <= TELLS_FOR_EACH * (size - 1);
    (front + if fits { total } else { 0 }, fits)
}

fn put_together(posting: &Posting, memory: &Memory, size: usize) -> Message {
    let pieces = posting.pieces.as_deref().unwrap_or_default();
    let (bytes, fits) = length(posting, size);
    let mut message = Message::with_capacity(bytes);
    if !fits {
        (0..=size).for_each(|_| message.extend_from_slice(&TOO_LONG.to_le_bytes()));
        return message;
    }
    if posting.tells {
        let mut begin = table_bytes(size) as u32;
        message.extend_from_slice(&begin.to_le_bytes());
        for piece in pieces {
            begin += piece.len() as u32;
            message.extend_from_slice(&begin.to_le_bytes());
        }
    }
    for piece in pieces {
        // SAFETY: nothing writes the input but the end of this exchange, and `read` panics beyond the buffer.
        message.extend_from_slice(unsafe { memory.read(Buffer::Input, piece.clone()) });
    }
    message
}

impl Exchange {
    /// As [`Exchange::progress`].
    pub(super) fn progress_in_pieces(
        &mut self,
        (plan, posting): (&SharedPlan, &Posting),
        memory: &Memory,
        stamps: &Stamps,
        endpoint: &mut Endpoint,
    ) -> Result<bool, Fault> {
        let mut moved = false;
        let size = endpoint.size();
        let board = endpoint.board().expect("all ranks have agreed that there are boards");
        if board.published() <= self.turn.number {
            let (bytes, fits) = length(posting, size);
            board.begin(posting.swaps);
            if let Some(rank) = board.crowded_by(bytes) {
                self.awaits = SmallVec::from_elem(rank as u32, 1);
                return Ok(false);
            }
            let message = put_together(posting, memory, size);
            let own = stamps.own();
            let stamp = if posting.tells { with_length(own, message.len() as u32) } else { own };
            endpoint.publish(Heading { stamp, history: self.turn.history }, &message);
            if posting.tells {
                self.told.resize(size, None);
                self.unfit = !fits;
            }
            moved = true;
        }
        if !posting.tells {
            return Ok(self.collect((plan, posting), memory, stamps, endpoint)? || moved);
        }
        Ok(self.collect_told((plan, posting), memory, stamps, endpoint)? || moved)
    }

    /// Takes what there is of messages that say themselves where this rank's part lies.
    fn collect_told(
        &mut self,
        (plan, posting): (&SharedPlan, &Posting),
        memory: &Memory,
        stamps: &Stamps,
        endpoint: &mut Endpoint,
    ) -> Result<bool, Fault> {
        let me = endpoint.me();
        let board = endpoint.board().expect("all ranks have agreed that there are boards");
        self.awaits.clear();
        for rank in posting.sources.clone().filter(|rank| *rank != me) {
            let fault = |cause| Fault { peer: rank, round: 0, step: rank, cause };
            let Some(theirs) = board.heading(rank) else {
                self.awaits.push(rank as u32);
                continue;
            };
            if without_length(theirs.stamp) != stamps.own() {
                return Err(fault(FaultCause::Stamp { theirs: theirs.stamp }));
            }
            if theirs.history != self.turn.history {
                return Err(fault(FaultCause::History));
            }
            let message = length_in(theirs.stamp);
            if self.told[rank].is_none() {
                let mut ends = [0; 2 * WORD];
                if !board.take(rank, message, &(me * WORD..(me + 2) * WORD), &mut ends) {
                    // Taken anew when all of it is there: what has come of it is not kept.
                    board.take_anew(rank);
                    self.awaits.push(rank as u32);
                    continue;
                }
                board.take_anew(rank);
                let [begin, end] =
                    [0, WORD].map(|at| u32::from_le_bytes(ends[at..at + WORD].try_into().expect("a word")));
                self.told[rank] = Some(begin as usize..end as usize);
                self.unfit |= begin == TOO_LONG;
            }
            let part = self.told[rank].clone().expect("has been told");
            if self.unfit || part.start == TOO_LONG as usize {
                continue;
            }
            let (_, takes, place) = posting.part(rank);
            if part.len() != takes.len() {
                let count = (part.len() / plan.element_bytes) as u64;
                return Err(fault(FaultCause::Stamp { theirs: Stamp([stamps.own().0[0], count]) }));
            }
            // SAFETY: nobody else touches the output, what of it is input has been published, and `write` panics beyond it.
            let target = unsafe { memory.write(Buffer::Output, place..place + takes.len()) };
            if !board.take(rank, message, &part, target) {
                self.awaits.push(rank as u32);
            }
        }
        if !self.awaits.is_empty() {
            return Ok(false);
        }
        if !self.unfit {
            keep_own(me, posting, memory);
        }
        endpoint.finish_turn();
        self.done = true;
        Ok(true)
    }
}
