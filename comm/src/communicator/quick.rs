//! Small blocking calls like one made before: their checks and their plan are known.

use std::sync::{Mutex, MutexGuard};

use super::Communicator;
use super::prepare::Prepared;
use crate::collective::Collective;
use crate::engine::{Memory, Message, Naming, Quick, Scratch, SharedPlan, Small, Stamps, Straight, Turn};
use crate::error::Result;
use crate::reduce::{DataType, ReduceOp};
use crate::request::{Buffers, Counts, Request};

/// A call without its addresses: what decides whether it is sound, but for whether its buffers overlap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Outline {
    collective: Collective,
    data_type: DataType,
    op: ReduceOp,
    root: usize,
    source: usize,
    count: usize,
    in_place: bool,
    uneven: bool,
    input: usize,
    output: usize,
}

/// The counts and offsets of a call with blocks of different lengths.
#[derive(Clone, PartialEq, Eq, Debug)]
struct OwnCounts([Box<[usize]>; 4]);

impl OwnCounts {
    fn of(counts: &Counts<'_>) -> OwnCounts {
        let Counts { send_counts, send_offsets, recv_counts, recv_offsets } = *counts;
        OwnCounts([send_counts, send_offsets, recv_counts, recv_offsets].map(Into::into))
    }

    fn are(&self, counts: &Counts<'_>) -> bool {
        let Counts { send_counts, send_offsets, recv_counts, recv_offsets } = *counts;
        let theirs = [send_counts, send_offsets, recv_counts, recv_offsets];
        // To compare nothing, memcmp may load from where nothing is, masked, which takes longer than the rest of the call.
        let same = |mine: &[usize], theirs: &[usize]| mine.len() == theirs.len() && (mine.is_empty() || mine == theirs);
        self.0.iter().zip(theirs).all(|(mine, theirs)| same(mine, theirs))
    }
}

/// A small call that has been found sound.
pub(super) struct Ready {
    outline: Outline,
    counts: Option<OwnCounts>,
    /// Whether the call asked for the plan's row, rather than for none.
    wished: bool,
    plan: SharedPlan,
    /// Of calls over links, the program if it runs straight.
    straight: Option<Straight>,
    naming: Naming,
    stamps: Stamps,
    /// Where input and output begin in their buffers, and their lengths.
    input: (usize, usize),
    output: (usize, usize),
}

/// The calls that may take the short way, the last first.
#[derive(Default)]
pub(super) struct Readies {
    /// Held while the first of them runs.
    recent: Mutex<Vec<Ready>>,
}

const KEPT: usize = 8;

impl Readies {
    /// All of them, unless somebody else looks at them.
    #[inline]
    fn all(&self) -> Option<MutexGuard<'_, Vec<Ready>>> {
        self.recent.try_lock().ok()
    }

    fn keep(&self, ready: Ready) {
        let Ok(mut recent) = self.recent.try_lock() else { return };
        // The long way is taken, too, where the short one is known but somebody else has the engine.
        let is_same = |known: &Ready| {
            known.outline == ready.outline
                && known.counts == ready.counts
                && known.wished == ready.wished
                && known.plan.row == ready.plan.row
        };
        recent.retain(|known| !is_same(known));
        recent.truncate(KEPT - 1);
        recent.insert(0, ready);
    }
}

impl Outline {
    #[inline]
    fn of(request: &Request<'_>) -> Outline {
        let uneven = request.counts.is_some();
        let (in_place, input, output) = match &request.buffers {
            Buffers::Separate { input, output } => (false, input.len(), output.len()),
            Buffers::InPlace(buffer) => (true, buffer.len(), buffer.len()),
        };
        let Request { collective, data_type, op, root, source, count, .. } = *request;
        Outline { collective, data_type, op, root, source, count, in_place, uneven, input, output }
    }
}

/// An input and an output, by address and length.
type Places = ((*const u8, usize), (*mut u8, usize));

/// The addresses of a call's buffers, if they are one or don't overlap.
#[inline]
fn addresses(buffers: &mut Buffers<'_>) -> Option<(*const u8, *mut u8)> {
    match buffers {
        Buffers::InPlace(buffer) => Some((buffer.as_ptr(), buffer.as_mut_ptr())),
        Buffers::Separate { input, output } => {
            let (first, second) = (input.as_ptr_range(), output.as_ptr_range());
            let apart = first.end <= second.start || second.end <= first.start;
            apart.then_some((input.as_ptr(), output.as_mut_ptr()))
        }
    }
}

impl Communicator {
    /// Runs a call the short way, if one like it has been made before and nothing else is under way.
    #[inline]
    pub(super) fn run_quick(&self, request: &mut Request<'_>) -> Option<Result<()>> {
        let outline = Outline::of(request);
        let mut readies = self.inner.readies.all()?;
        let place = self.place_of(&readies, &outline, request)?;
        if place > 0 {
            readies[..=place].rotate_right(1);
        }
        let buffers = addresses(&mut request.buffers)?;
        let (engine, ready) = (&self.inner.engine, &readies[0]);
        match ready.naming {
            Naming::Whole if ready.plan.posting.is_none() => {
                // SAFETY: the buffers are lent for as long as the call runs, and one like it is ready.
                engine.run_small(|scratch| unsafe { self.small(ready, buffers, scratch) })
            }
            // SAFETY: as above.
            Naming::Whole => engine.run_quick(|| unsafe { self.quick(ready, buffers) }),
            // SAFETY: as above.
            Naming::Pair { to, from } => engine.run_message(|| unsafe { self.message(ready, (to, from), buffers) }),
        }
    }

    /// As [`Communicator::run_quick`], several calls one after the other, if all of them may.
    pub(super) fn run_all_quick(&self, requests: &mut [Request<'_>]) -> Option<Result<()>> {
        let readies = self.inner.readies.all()?;
        let mut calls: Vec<(&Ready, _)> = Vec::with_capacity(requests.len());
        for request in requests {
            let outline = Outline::of(request);
            let last = calls.last().map(|(ready, _)| *ready);
            let ready = match last.filter(|ready| !outline.uneven && ready.outline == outline) {
                Some(ready) => ready,
                None => &readies[self.place_of(&readies, &outline, request)?],
            };
            ready.plan.posting.as_ref()?;
            calls.push((ready, addresses(&mut request.buffers)?));
        }
        // SAFETY: as in `run_quick`, for each.
        self.inner.engine.run_all_quick(calls.iter().map(|(ready, buffers)| unsafe { self.quick(ready, *buffers) }))
    }

    /// Where in the list a call like this one is.
    #[inline]
    fn place_of(&self, readies: &[Ready], outline: &Outline, request: &Request<'_>) -> Option<usize> {
        let (counts, wish) = (request.counts.as_ref(), self.options.algorithm.as_deref());
        let same = |ready: &Ready| {
            ready.outline == *outline
                && counts.is_none_or(|counts| ready.counts.as_ref().is_some_and(|known| known.are(counts)))
                && ready.wished == wish.is_some()
                && wish.is_none_or(|name| name == ready.plan.row)
        };
        readies.iter().position(same)
    }

    /// A call with its numbers: from here on it must run.
    ///
    /// # Safety
    ///
    /// The buffers are those of a request of `ready`'s outline and counts, apart or in place, and lent until the call has
    /// ended.
    #[inline]
    unsafe fn quick<'a>(&self, ready: &'a Ready, (input, output): (*const u8, *mut u8)) -> Quick<'a> {
        let (from, to) = (ready.input, ready.output);
        // SAFETY: a call of the same outline was found sound with these ranges of its buffers (and the caller).
        unsafe { self.numbered(&ready.plan, &ready.stamps, ((input.add(from.0), from.1), (output.add(to.0), to.1))) }
    }

    /// As [`Communicator::quick`], over links.
    ///
    /// # Safety
    ///
    /// The same.
    #[inline]
    unsafe fn small<'a>(&self, ready: &'a Ready, (input, output): (*const u8, *mut u8), scratch: Scratch) -> Small<'a> {
        let Ready { plan, straight, stamps, input: from, output: to, .. } = ready;
        let scratch = (scratch, plan.scratch_bytes());
        // SAFETY: as in `quick`.
        let memory =
            unsafe { Memory::with_scratch((input.add(from.0), from.1), (output.add(to.0), to.1), scratch, None) };
        self.inner.note_in_history(stamps);
        let straight = straight.as_ref();
        Small { plan, straight, memory, stamps, sequence: self.next_sequence(), timeout: self.timeout() }
    }

    /// As [`Communicator::quick`], of a message.
    ///
    /// # Safety
    ///
    /// The same.
    #[inline]
    unsafe fn message<'a>(
        &self,
        ready: &'a Ready,
        (to, from): (usize, usize),
        (input, output): (*const u8, *mut u8),
    ) -> Message<'a> {
        let Ready { plan, naming, stamps, input: leaving, output: arriving, .. } = ready;
        let (channels, sequence) = self.next_message(plan.collective, (to, from));
        // SAFETY: as in `quick`.
        let memory =
            unsafe { Memory::new((input.add(leaving.0), leaving.1), (output.add(arriving.0), arriving.1), 0, None) };
        Message { plan, memory, stamps, channels, naming: *naming, sequence, timeout: self.timeout() }
    }

    /// As [`Communicator::run_all_quick`], of calls that have been prepared.
    pub(super) fn run_all_prepared(&self, calls: &[Prepared]) -> Option<Result<()>> {
        if !calls.iter().all(Prepared::is_quick) {
            return None;
        }
        // SAFETY: the requests' buffers are lent until the calls have ended, and these are their sound ranges.
        let quick = calls.iter().map(|call| unsafe { self.numbered(call.plan(), call.stamps(), call.places()) });
        self.inner.engine.run_all_quick(quick)
    }

    /// A call with its numbers.
    ///
    /// # Safety
    ///
    /// The places are a sound call's of this plan, and lent until it has ended.
    #[inline]
    unsafe fn numbered<'a>(&self, plan: &'a SharedPlan, stamps: &'a Stamps, (input, output): Places) -> Quick<'a> {
        // SAFETY: the caller's promise.
        let memory = unsafe { Memory::new(input, output, plan.scratch_bytes(), None) };
        let (turn, sequence) = self.next_turn(stamps);
        Quick { plan, memory, stamps, turn, sequence, timeout: self.timeout() }
    }

    /// The numbers of the next call over the boards.
    #[inline]
    fn next_turn(&self, stamps: &Stamps) -> (Turn, u64) {
        let history = self.inner.note_in_history(stamps);
        (Turn { number: self.inner.next_turns(1), history }, self.next_sequence())
    }

    /// Makes a call ready, and keeps what is known of it for others like it.
    pub(super) fn prepare_and_keep(&self, request: Request<'_>) -> Result<Prepared> {
        let (outline, buffers) = (Outline::of(&request), request.buffers.addresses());
        let counts = request.counts;
        let prepared = self.prepare(request)?;
        self.keep_ready(outline, counts, buffers, &prepared);
        Ok(prepared)
    }

    /// Keeps what is known of a prepared call for others like it, if they may take the short way.
    fn keep_ready(&self, outline: Outline, counts: Option<Counts<'_>>, buffers: (usize, usize), prepared: &Prepared) {
        if !prepared.is_quick() && !prepared.is_quick_message(self.inner.rank) && !prepared.is_small() {
            return;
        }
        let (input, output) = prepared.places();
        self.inner.readies.keep(Ready {
            outline,
            counts: counts.as_ref().map(OwnCounts::of),
            wished: self.options.algorithm.is_some(),
            plan: prepared.plan().clone(),
            straight: if prepared.is_small() { Straight::of(prepared.plan()) } else { None },
            naming: prepared.naming(),
            stamps: prepared.stamps().clone(),
            input: (input.0.addr() - buffers.0, input.1),
            output: (output.0.addr() - buffers.1, output.1),
        });
    }
}
