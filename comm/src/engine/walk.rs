//! One look at the steps of a round: the only place where bytes move.

use std::ops::Range;

use paceline_transport::{Channel, Endpoint, LinkError, Stamp};

use super::channels::{Channels, Naming};
use super::lane::{DONE, ELEMENT_BYTES_MAX, Lane, Part};
use super::memory::Memory;
use super::plan::{Plan, SharedPlan};
use super::stamp::Stamps;
use crate::schedule::{Buffer, Span, Step};

/// Why a call can't move on, and where it stood.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) peer: usize,
    pub(crate) round: usize,
    pub(crate) step: usize,
    pub(crate) cause: FaultCause,
}

/// Why a call can't move on.
#[derive(Debug)]
pub(crate) enum FaultCause {
    /// The link says so.
    Link(LinkError),
    /// The peer is doing something else.
    Stamp { theirs: Stamp },
    /// The peer is doing the same, but did something else before.
    History,
    /// The peer sends more than the schedule says.
    Length { arrived: usize, wanted: usize },
}

/// One look at the steps of a lane's round.
pub(super) struct Walk<'a> {
    pub(super) plan: &'a SharedPlan,
    pub(super) memory: &'a Memory,
    pub(super) channels: Channels,
    pub(super) naming: Naming,
    pub(super) stamps: &'a Stamps,
    pub(super) endpoint: &'a mut Endpoint,
    pub(super) moved: bool,
}

impl Walk<'_> {
    /// Moves the open steps on; whether all have ended.
    #[inline]
    pub(super) fn round(&mut self, lane: &mut Lane) -> Result<bool, Fault> {
        let plan = self.plan;
        let mut all = true;
        for (place, step) in plan.program.steps_of(lane.round).iter().enumerate() {
            if lane.moved[place] == DONE {
                continue;
            }
            if plan.before(lane.round, place).is_some_and(|earlier| lane.moved[earlier] != DONE) {
                all = false;
                continue;
            }
            let before = lane.moved[place];
            let after = self.step(step, lane, before, place)?;
            if after != before {
                lane.moved[place] = after;
                self.moved = true;
            }
            all &= after == DONE;
        }
        Ok(all)
    }

    /// Moves one step on from `moved` bytes; how many are moved now, or `DONE`.
    #[inline]
    fn step(&mut self, step: &Step, lane: &mut Lane, moved: usize, place: usize) -> Result<usize, Fault> {
        let range = |span| self.plan.range(span, &lane.shapes, lane.number);
        let in_round = lane.round;
        let fault = |peer, cause| Fault { peer, round: in_round, step: place, cause };
        match step {
            Step::Send { to, source } => {
                let peer = self.naming.target(*to);
                let mut rest = range(source);
                rest.start += moved;
                let channel = self.channels.of(lane.number, false);
                // SAFETY: no other step of the round writes what this one reads (schedule rule 2), and a span is inside
                // its buffer or `read` panics.
                let message = unsafe { self.memory.read(source.buffer, rest) };
                let sent = self.endpoint.send(peer, channel, self.stamps.to(peer), message);
                match sent {
                    Ok(Some(bytes)) if bytes == message.len() => Ok(DONE),
                    Ok(Some(bytes)) => Ok(moved + bytes),
                    // The control path says why the peer closed: it may have left, or another rank's fault made it.
                    Ok(None) | Err(LinkError::Closed) => Ok(moved),
                    Err(error) => Err(fault(peer, FaultCause::Link(error))),
                }
            }
            Step::Recv { from, target } => {
                let peer = self.naming.source(*from);
                let channel = self.channels.of(lane.number, true);
                let mut rest = range(target);
                rest.start += moved;
                let wanted = rest.len();
                if !self.arrived(peer, channel, wanted).map_err(|cause| fault(peer, cause))? {
                    return Ok(moved);
                }
                if wanted == 0 {
                    self.endpoint.advance(peer, channel, 0);
                    return Ok(DONE);
                }
                // SAFETY: no other step of the round touches what this one writes (schedule rule 2), and no schedule
                // writes to the input (the checker).
                let target = unsafe { self.memory.write(target.buffer, rest) };
                let got = if self.plan.is_last_use(lane.round, place) {
                    self.endpoint.recv_past_caches(peer, channel, target)
                } else {
                    self.endpoint.recv_into(peer, channel, target)
                };
                let got = got.map_err(|error| fault(peer, FaultCause::Link(error)))?;
                Ok(if got == wanted { DONE } else { moved + got })
            }
            Step::RecvReduce { from, source, target } => {
                let peer = self.naming.source(*from);
                let channel = self.channels.of(lane.number, true);
                let (mut mine, mut rest) = (range(source), range(target));
                (mine.start, rest.start) = (mine.start + moved, rest.start + moved);
                let size = self.plan.element_bytes;
                let part = lane.parts.iter().position(|part| part.place == place);
                let wanted = rest.len() - part.map_or(0, |part| lane.parts[part].len);
                if !self.arrived(peer, channel, wanted).map_err(|cause| fault(peer, cause))? {
                    return Ok(moved);
                }
                let head = self.endpoint.head(peer, channel).map_err(|error| fault(peer, FaultCause::Link(error)))?;
                let arrived = head.expect("looked at above").bytes;
                let elements = arrived.len().min(wanted) / size;
                if part.is_some() || (elements == 0 && wanted > 0) {
                    if arrived.is_empty() {
                        self.endpoint.show(peer, channel);
                        return Ok(moved);
                    }
                    let mut whole = match part {
                        Some(part) => lane.parts.swap_remove(part),
                        None => Part { place, bytes: [0; ELEMENT_BYTES_MAX], len: 0 },
                    };
                    let taken = whole.fill(size, arrived);
                    self.endpoint.advance(peer, channel, taken);
                    self.moved = true;
                    if whole.len < size {
                        lane.parts.push(whole);
                        return Ok(moved);
                    }
                    let mine = self.memory.address(source.buffer, &(mine.start..mine.start + size));
                    let target = self.memory.address(target.buffer, &(rest.start..rest.start + size));
                    // SAFETY: as for whole elements below.
                    unsafe { self.plan.kernel.combine(target, mine, whole.bytes.as_ptr(), 1) };
                    return Ok(if rest.len() == size { DONE } else { moved + size });
                }
                let bytes = elements * size;
                let mine = self.memory.address(source.buffer, &(mine.start..mine.start + bytes));
                let target = self.memory.address(target.buffer, &(rest.start..rest.start + bytes));
                // SAFETY: `address` has checked both ranges; `mine` and `target` are the same bytes or disjoint, and no
                // other step of the round touches them (schedule rule 2); `arrived` holds as many elements.
                unsafe { self.plan.kernel.combine(target, mine, arrived.as_ptr(), elements) };
                self.endpoint.advance(peer, channel, bytes);
                Ok(if bytes == wanted { DONE } else { moved + bytes })
            }
            Step::Copy { source, target } => {
                copy(self.memory, (source.buffer, &range(source)), (target.buffer, &range(target)));
                Ok(DONE)
            }
            Step::Reduce { source, runs, target } => {
                fold(self.plan, self.memory, (*runs, target), (range(source).start, &range(target)));
                Ok(DONE)
            }
        }
    }

    /// Whether something has arrived that belongs here; an error if it is of another call or too long.
    #[inline]
    fn arrived(&mut self, peer: usize, channel: Channel, wanted: usize) -> Result<bool, FaultCause> {
        let head = match self.endpoint.head(peer, channel) {
            Err(LinkError::Closed) => None,
            head => head.map_err(FaultCause::Link)?,
        };
        match head {
            None => Ok(false),
            Some(head) if head.stamp != self.stamps.from(peer) => Err(FaultCause::Stamp { theirs: head.stamp }),
            Some(head) if head.left > wanted => Err(FaultCause::Length { arrived: head.left, wanted }),
            Some(_) => Ok(true),
        }
    }
}

impl Part {
    /// Takes bytes from the front of `arrived` until the element of `size` bytes is whole; how many.
    fn fill(&mut self, size: usize, arrived: &[u8]) -> usize {
        let taken = arrived.len().min(size - self.len);
        self.bytes[self.len..][..taken].copy_from_slice(&arrived[..taken]);
        self.len += taken;
        taken
    }
}

/// The most runs whose addresses fit on the stack.
const RUNS_ON_STACK: usize = 16;

/// Copies a range of one buffer over one of another, equally long.
pub(super) fn copy(memory: &Memory, from: (Buffer, &Range<usize>), to: (Buffer, &Range<usize>)) {
    assert_eq!(from.1.len(), to.1.len(), "a copy keeps its length");
    let (source, target) = (memory.address(from.0, from.1), memory.address(to.0, to.1));
    if !std::ptr::eq(source, target) {
        // SAFETY: `address` has checked both ranges; they are the same (skipped) or disjoint, and no other step of the round
        // writes the one or touches the other (schedule rule 2).
        unsafe { std::ptr::copy_nonoverlapping(source, target, from.1.len()) };
    }
}

/// Folds runs of scratch, of which the first begins at `first`, into the range `to` of a target.
pub(super) fn fold(plan: &Plan, memory: &Memory, (runs, target): (u32, &Span), (first, to): (usize, &Range<usize>)) {
    let elements = to.len() / plan.element_bytes;
    let stride = plan.run_stride(target.count);
    let run = |k: u32| {
        let start = first + k as usize * stride;
        memory.address(Buffer::Scratch, &(start..start + to.len())).cast_const()
    };
    let target = memory.address(target.buffer, to);
    let mut few = [std::ptr::null(); RUNS_ON_STACK];
    let many: Vec<*const u8>;
    let sources = if runs as usize <= RUNS_ON_STACK {
        for k in 0..runs {
            few[k as usize] = run(k);
        }
        &few[..runs as usize]
    } else {
        many = (0..runs).map(run).collect();
        &many[..]
    };
    // SAFETY: `address` has checked every range; the runs are scratch, which no other step of the round writes, and the
    // target is disjoint from them or one of them (schedule rule 2).
    unsafe { plan.kernel.fold(target, sources, elements) };
}
