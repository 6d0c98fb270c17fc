//! A call made ready to run: the row's program, and where its chunks lie in each slice.

use std::collections::HashMap;
use std::sync::Arc;

use super::exchange::Posting;
use super::shape::Shape;
use crate::collective::Collective;
use crate::reduce::Kernel;
use crate::schedule::{Buffer, Program, Span, Step};

/// How the message of a collective is cut into slices and lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slicing {
    /// The most bytes that one chunk has in a slice.
    pub(crate) chunk_bytes: usize,
    /// How many slices are under way at the same time.
    pub(crate) lanes: usize,
}

impl Slicing {
    /// The whole message as one slice.
    pub(crate) const UNCUT: Slicing = Slicing { chunk_bytes: usize::MAX, lanes: 1 };
}

/// The geometry of a call, before it is cut.
#[derive(Clone, Debug)]
pub(crate) enum Extent {
    /// One vector of that many elements.
    Vector(usize),
    /// Blocks of that many elements each.
    Blocks(usize),
    /// Blocks of any lengths at any places, in bytes: of the input, of the output.
    Uneven { input: Shape, output: Shape },
}

/// Everything about a call but its addresses and its number.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) collective: Collective,
    pub(crate) row: &'static str,
    pub(crate) program: Program,
    pub(crate) kernel: Kernel,
    pub(crate) element_bytes: usize,
    extent: Extent,
    /// Elements of the vector, or of each block, that a slice takes.
    slice_elements: usize,
    pub(crate) slices: usize,
    pub(crate) lanes: usize,
    /// Per round, per step, the step of the round that goes before it on the same channel; empty where there is none.
    queues: Vec<Box<[u32]>>,
    /// Of a large call, per round, whether each step receives what no later step reads; empty for others.
    last_uses: Vec<Box<[bool]>>,
    /// Bytes of one slot of scratch.
    slot_bytes: usize,
    /// Bytes of one lane's scratch.
    lane_scratch_bytes: usize,
    /// What this rank does if the call runs over the boards, and not by the program.
    pub(crate) posting: Option<Posting>,
}

impl Plan {
    /// Cuts a call into slices. All ranks must pass the same `extent` (of uneven blocks: the same sizes), `slicing` and
    /// program, but for the rank it is written for. Rows that move runs of blocks need [`Slicing::UNCUT`].
    pub(crate) fn new(
        collective: Collective,
        row: &'static str,
        program: Program,
        kernel: Kernel,
        element_bytes: usize,
        extent: Extent,
        slicing: Slicing,
    ) -> Plan {
        let (elements, parts) = match &extent {
            Extent::Vector(elements) => (*elements, program.chunks as usize),
            Extent::Blocks(elements) => (*elements, 1),
            Extent::Uneven { .. } => (0, 1),
        };
        let most = (slicing.chunk_bytes / element_bytes).max(1).saturating_mul(parts);
        let slices = elements.div_ceil(most).max(1);
        let slice_elements = elements.div_ceil(slices).next_multiple_of(64).min(elements);
        let slices = if slice_elements == 0 { 1 } else { elements.div_ceil(slice_elements) };
        let lanes = slicing.lanes.min(slices).max(1);
        let queues = program.rounds().map(queue).collect();
        let mut plan = Plan {
            collective,
            row,
            program,
            kernel,
            element_bytes,
            extent,
            slice_elements,
            slices,
            lanes,
            queues,
            last_uses: Vec::new(),
            slot_bytes: 0,
            lane_scratch_bytes: 0,
            posting: None,
        };
        if plan.outgrows_caches() {
            plan.last_uses = last_uses(&plan.program);
        }
        plan.slot_bytes = plan.shapes(0).message().widest().next_multiple_of(64);
        plan.lane_scratch_bytes = plan.slot_bytes * plan.program.scratch as usize;
        plan
    }

    /// The same call over the boards of the host. Where only there it turns out whether all messages fit, the program may
    /// still have to run.
    pub(crate) fn on_boards(mut self) -> Plan {
        let ranks = [self.program.me, self.program.size, self.program.root].map(|rank| rank as usize).into();
        let posting = match (self.even_bytes(), &self.extent) {
            (None, Extent::Uneven { input, output }) => Posting::uneven(self.collective, ranks, (input, output)),
            (bytes, _) => Posting::new(self.collective, ranks, bytes.expect("of one length")),
        };
        if !posting.tells {
            (self.lanes, self.lane_scratch_bytes) = (0, 0);
        }
        self.posting = Some(posting);
        self
    }

    /// Bytes of the vector or of one block; `None` of uneven blocks.
    pub(crate) fn even_bytes(&self) -> Option<usize> {
        match self.extent {
            Extent::Vector(elements) | Extent::Blocks(elements) => Some(elements * self.element_bytes),
            Extent::Uneven { .. } => None,
        }
    }

    /// How many chunks of this rank's output hold a sum when the program has ended.
    pub(crate) fn summed_chunks(&self) -> u32 {
        match self.collective {
            Collective::AllReduce => self.program.chunks,
            Collective::Reduce if self.program.me == self.program.root => self.program.chunks,
            Collective::ReduceScatter => 1,
            _ => 0,
        }
    }

    /// Whether a vector, or one block, won't be in a cache any more when the call has ended.
    pub(crate) fn outgrows_caches(&self) -> bool {
        self.even_bytes().is_some_and(|bytes| bytes >= OUTGROWS_CACHES)
    }

    /// The scratch that a call needs.
    pub(crate) fn scratch_bytes(&self) -> usize {
        self.lane_scratch_bytes * self.lanes
    }

    /// Where the chunks lie in one slice.
    pub(crate) fn shapes(&self, slice: usize) -> Shapes {
        let bytes = self.element_bytes;
        let first = slice * self.slice_elements;
        match &self.extent {
            Extent::Vector(elements) => {
                let here = self.slice_elements.min(elements - first);
                let shape = Shape::vector(first * bytes, here, bytes, self.program.chunks);
                Shapes { input: shape.clone(), output: shape, blocks: false, message_is_input: false }
            }
            Extent::Blocks(elements) => {
                let here = self.slice_elements.min(elements - first);
                let shape = Shape::Blocks { stride: elements * bytes, skip: first * bytes, bytes: here * bytes };
                Shapes { input: shape.clone(), output: shape, blocks: true, message_is_input: false }
            }
            Extent::Uneven { input, output } => Shapes {
                input: input.clone(),
                output: output.clone(),
                blocks: true,
                message_is_input: matches!(self.collective, Collective::ReduceScatter | Collective::Scatter),
            },
        }
    }

    /// The step of the round that must have ended before step `step` may begin: they share a channel, and what one rank
    /// sends another arrives in the order of the steps.
    #[inline(always)]
    pub(crate) fn before(&self, round: usize, step: usize) -> Option<usize> {
        self.queues[round].get(step).filter(|before| **before != NOTHING).map(|before| *before as usize)
    }

    /// Whether a step receives what no later step reads, in a call so large that it won't stay in the caches either.
    #[inline]
    pub(crate) fn is_last_use(&self, round: usize, step: usize) -> bool {
        self.last_uses.get(round).is_some_and(|steps| steps[step])
    }

    /// The bytes of a span, in the buffer it names, for a slice that runs on `lane`.
    #[inline]
    pub(crate) fn range(&self, span: &Span, shapes: &Shapes, lane: usize) -> std::ops::Range<usize> {
        match span.buffer {
            Buffer::Input => shapes.input.range(span.first, span.count),
            Buffer::Output => shapes.output.range(span.first, span.count),
            Buffer::Scratch => {
                let message = shapes.message();
                let slot = lane * self.lane_scratch_bytes + span.first as usize * self.slot_bytes;
                let start = slot + message.bytes(span.like - span.skip, span.skip);
                start..start + message.bytes(span.like, span.count)
            }
        }
    }

    /// How far apart the runs of a `Reduce` start, in bytes.
    #[inline]
    pub(crate) fn run_stride(&self, slots: u32) -> usize {
        slots as usize * self.slot_bytes
    }
}

/// Where the chunks of one slice lie.
#[derive(Clone, Debug)]
pub(crate) struct Shapes {
    pub(crate) input: Shape,
    pub(crate) output: Shape,
    blocks: bool,
    message_is_input: bool,
}

impl Shapes {
    /// The shape that says how long the message's chunks are, for scratch.
    #[inline]
    pub(crate) fn message(&self) -> &Shape {
        if self.blocks && self.message_is_input { &self.input } else { &self.output }
    }
}

/// From how many bytes on a buffer doesn't stay in the caches.
const OUTGROWS_CACHES: usize = 16 << 20;

/// Per round and step, whether it receives chunks of the output that no later step reads.
fn last_uses(program: &Program) -> Vec<Box<[bool]>> {
    let mut read_later = vec![false; program.chunks.max(program.size) as usize];
    let chunks = |span: &Span| span.first as usize..(span.first + span.count) as usize;
    let mut rounds: Vec<Box<[bool]>> = Vec::new();
    for round in (0..program.n_rounds()).rev() {
        let steps = program.steps_of(round);
        let is_last = |step: &Step| match step {
            Step::Recv { target, .. } if target.buffer == Buffer::Output => !read_later[chunks(target)].contains(&true),
            _ => false,
        };
        rounds.push(steps.iter().map(is_last).collect());
        for step in steps {
            let (Step::Send { source, .. }
            | Step::RecvReduce { source, .. }
            | Step::Copy { source, .. }
            | Step::Reduce { source, .. }) = step
            else {
                continue;
            };
            if source.buffer == Buffer::Output {
                read_later[chunks(source)].fill(true);
            }
        }
    }
    rounds.reverse();
    rounds
}

const NOTHING: u32 = u32::MAX;

/// Which step of a round goes before which on the same channel.
fn queue(steps: &[Step]) -> Box<[u32]> {
    let channel = |step: &Step| match *step {
        Step::Send { to, .. } => Some((to, false)),
        Step::Recv { from, .. } | Step::RecvReduce { from, .. } => Some((from, true)),
        Step::Copy { .. } | Step::Reduce { .. } => None,
    };
    let mut last = HashMap::new();
    let before = |(place, step): (usize, &Step)| match channel(step) {
        Some(channel) => last.insert(channel, place as u32).unwrap_or(NOTHING),
        None => NOTHING,
    };
    let queue: Vec<u32> = steps.iter().enumerate().map(before).collect();
    if queue.iter().all(|before| *before == NOTHING) { Box::default() } else { queue.into() }
}

/// A plan that calls share.
pub(crate) type SharedPlan = Arc<Plan>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{ROWS, row};

    fn moves_runs(program: &Program) -> bool {
        let is_run = |span: &Span| span.count > 1;
        let is_run_of_blocks = |span: &Span| is_run(span) && span.buffer != Buffer::Scratch;
        program.rounds().flatten().any(|step| match step {
            Step::Send { source, .. } => is_run(source),
            Step::Recv { target, .. } => is_run(target),
            Step::RecvReduce { source, target, .. }
            | Step::Copy { source, target }
            | Step::Reduce { source, target, .. } => is_run_of_blocks(source) || is_run_of_blocks(target),
        })
    }

    #[test]
    fn in_a_ring_only_the_last_chunk_to_come_is_not_sent_on() {
        let program = row(Collective::AllReduce, "ring").unwrap().program(1, 4, 0);
        let flat: Vec<bool> = last_uses(&program).concat();
        assert_eq!(flat.iter().filter(|last| **last).count(), 1);
        let received = program.rounds().flatten().map(|step| matches!(step, Step::Recv { .. }));
        let last = received.enumerate().filter(|(_, receives)| *receives).last().unwrap().0;
        assert!(flat[last]);
    }

    /// How a message is cut must not depend on what one rank does: a leaf of a tree sends one block where its parent sends
    /// many.
    #[test]
    fn rows_say_whether_any_rank_moves_runs_of_blocks() {
        for row in ROWS.iter().filter(|row| row.collective.has_blocks()) {
            let sizes = || (2..=17).filter(|n| (row.fits)(*n));
            let any = sizes().any(|n| row.programs(n, n - 1).iter().any(moves_runs));
            assert_eq!(any, row.moves_runs, "{} {}", row.collective, row.name);
        }
    }
}
