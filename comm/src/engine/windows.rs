//! Large calls over registered memory: every rank reads the others' buffers where they lie.
//!
//! The ranks meet three times over the boards (twice, where there is one stage only): to tell where their buffers lie, so
//! that nobody reads an input before its owner has made the call; when everybody has read the inputs; and when everybody
//! has read the outputs. Reductions fold in rank order, as the `direct` rows do. If one rank's buffers are not registered,
//! all ranks learn it at the first meeting, and the call's program runs instead.

use std::ops::Range;
use std::sync::Arc;

use paceline_transport::{Endpoint, Region, copy_past_caches};
use smallvec::SmallVec;

use super::exchange::{Exchange, Posting, Turn};
use super::memory::Memory;
use super::plan::SharedPlan;
use super::stamp::Stamps;
use super::walk::Fault;
use crate::collective::Collective;
use crate::reduce::ReduceOp;
use crate::schedule::Buffer;

/// Memory that a group has registered: each rank's part of it.
#[derive(Debug)]
pub(crate) struct Window {
    /// Its number in the group; the same on all ranks, and not 0.
    pub(crate) number: u64,
    pub(crate) all: Vec<Option<Arc<Region>>>,
}

/// Where one buffer of a call lies in registered memory.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) window: Arc<Window>,
    pub(crate) offset: usize,
}

/// What one rank says of its buffers: the numbers of their windows, 0 if there is none, and where they begin in them.
type Descriptor = [u64; 4];
const DESCRIPTOR_BYTES: usize = size_of::<Descriptor>();

/// Bytes moved between two looks at the rest of the world.
const BITE_BYTES: usize = 256 << 10;
/// Bytes folded at once: little enough to stay in the first-level cache.
const FOLD_BYTES: usize = 16 << 10;
const PART_ALIGN: usize = 64;

/// How a call over windows has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Done,
    /// Some rank's buffers are not registered.
    Unfit,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Meeting,
    Working(usize),
    Waiting(usize),
    Leaving(usize),
    Ended(Outcome),
}

/// How far one rank has come in a call over windows.
#[derive(Debug)]
pub(crate) struct Windows {
    first: Turn,
    exchange: Exchange,
    stage: Stage,
    /// Bytes of the present stage that are done.
    done: usize,
    input: Option<Placed>,
    output: Option<Placed>,
    /// Mine, and by rank everybody's.
    mine: Box<Descriptor>,
    theirs: Box<[Descriptor]>,
}

/// One stretch of work: of a rank's buffer, to this rank's output; or of all ranks' inputs, folded.
struct Stretch {
    /// `None` for all.
    from: Option<usize>,
    of_output: bool,
    source: usize,
    target: usize,
    bytes: usize,
}

/// Whether calls of this collective can run over windows.
pub(crate) fn suits(collective: Collective) -> bool {
    use Collective::{AllGather, AllReduce, AllToAll, Broadcast, ReduceScatter};
    matches!(collective, AllReduce | ReduceScatter | AllGather | AllToAll | Broadcast)
}

fn stages(collective: Collective) -> usize {
    if collective == Collective::AllReduce { 2 } else { 1 }
}

/// How many turns a call takes.
pub(crate) fn turns(collective: Collective) -> u64 {
    stages(collective) as u64 + 1
}

impl Windows {
    /// A call whose buffers lie there, as far as they are registered.
    pub(crate) fn new(size: usize, first: Turn, input: Option<Placed>, output: Option<Placed>) -> Windows {
        let number = |placed: &Option<Placed>| match placed {
            Some(placed) if placed.window.all.iter().all(Option::is_some) => placed.window.number,
            _ => 0,
        };
        let offset = |placed: &Option<Placed>| placed.as_ref().map_or(0, |placed| placed.offset as u64);
        let mine = Box::new([number(&input), offset(&input), number(&output), offset(&output)]);
        let (exchange, stage) = (Exchange::new(first), Stage::Meeting);
        let theirs = vec![[0; 4]; size].into();
        Windows { first, exchange, stage, done: 0, input, output, mine, theirs }
    }

    pub(super) fn outcome(&self) -> Option<Outcome> {
        if let Stage::Ended(outcome) = self.stage { Some(outcome) } else { None }
    }

    pub(super) fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// Whether all ranks' buffers are registered, in the same windows.
    fn all_fit(&self) -> bool {
        let [input, _, output, _] = self.theirs[0];
        input > 0 && output > 0 && self.theirs.iter().all(|theirs| theirs[0] == input && theirs[2] == output)
    }

    /// Moves on as far as it goes now; whether anything moved.
    pub(super) fn progress(
        &mut self,
        plan: &SharedPlan,
        memory: &Memory,
        stamps: &Stamps,
        endpoint: &mut Endpoint,
    ) -> Result<bool, Fault> {
        let (me, size) = (endpoint.me(), endpoint.size());
        let last = stages(plan.collective) - 1;
        let mut moved = false;
        loop {
            match self.stage {
                Stage::Meeting => {
                    let posting = Posting::new(Collective::AllGather, (me, size, 0), DESCRIPTOR_BYTES);
                    let (from, to) = (self.mine.as_ptr(), self.theirs.as_mut_ptr());
                    let bytes = (DESCRIPTOR_BYTES, size * DESCRIPTOR_BYTES);
                    // SAFETY: both are boxes of this value, as long as said, and nobody else touches them meanwhile.
                    let own = unsafe { Memory::new((from.cast(), bytes.0), (to.cast(), bytes.1), 0, None) };
                    moved |= self.exchange.progress((plan, &posting), &own, stamps, endpoint)?;
                    if !self.exchange.done {
                        return Ok(moved);
                    }
                    let fit = self.all_fit();
                    self.open(if fit { Stage::Working(0) } else { Stage::Leaving(0) }, 1);
                }
                Stage::Working(stage) => {
                    self.work(stage, plan, memory, me);
                    moved = true;
                    if self.stage == Stage::Working(stage) {
                        return Ok(moved);
                    }
                }
                Stage::Waiting(stage) => {
                    let posting = Posting::new(Collective::Barrier, (me, size, 0), 0);
                    moved |= self.exchange.progress((plan, &posting), memory, stamps, endpoint)?;
                    if !self.exchange.done {
                        return Ok(moved);
                    }
                    let next = if stage == last { Stage::Ended(Outcome::Done) } else { Stage::Working(stage + 1) };
                    self.open(next, stage as u64 + 2);
                }
                Stage::Leaving(stage) => {
                    moved |= self.exchange.progress((plan, &Posting::nothing()), memory, stamps, endpoint)?;
                    if !self.exchange.done {
                        return Ok(moved);
                    }
                    let next = if stage == last { Stage::Ended(Outcome::Unfit) } else { Stage::Leaving(stage + 1) };
                    self.open(next, stage as u64 + 2);
                }
                Stage::Ended(_) => return Ok(moved),
            }
        }
    }

    /// Begins a stage, whose turn is the `turn`th of the call.
    fn open(&mut self, stage: Stage, turn: u64) {
        self.stage = stage;
        if !matches!(stage, Stage::Ended(_)) {
            self.exchange = Exchange::new(Turn { number: self.first.number + turn, ..self.first });
        }
        self.done = 0;
    }

    /// Does a bite of a stage's work.
    fn work(&mut self, stage: usize, plan: &SharedPlan, memory: &Memory, me: usize) {
        let mut left = BITE_BYTES;
        let mut before = 0;
        for stretch in stretches(plan, stage, me) {
            let begun = self.done.saturating_sub(before).min(stretch.bytes);
            before += stretch.bytes;
            let bytes = (stretch.bytes - begun).min(left);
            if bytes > 0 {
                self.run(&stretch, begun..begun + bytes, plan, memory, me);
                self.done += bytes;
                left -= bytes;
            }
            if left == 0 {
                break;
            }
        }
        if self.done == stretches(plan, stage, me).map(|stretch| stretch.bytes).sum::<usize>() {
            self.stage = Stage::Waiting(stage);
        }
    }

    /// The bytes of a rank's buffer that begin `at` bytes into it.
    fn source(&self, rank: usize, of_output: bool, at: usize, bytes: usize) -> *const u8 {
        let placed = if of_output { &self.output } else { &self.input };
        let window = &placed.as_ref().expect("all ranks have said that they have one").window;
        let region = window.all[rank].as_ref().expect("this rank has said that it reaches all");
        let start = self.theirs[rank][if of_output { 3 } else { 1 }] as usize + at;
        assert!(start + bytes <= region.bytes(), "rank {rank} names memory beyond its window");
        // SAFETY: within the region (asserted), which the window keeps mapped.
        unsafe { region.start().add(start).cast_const() }
    }

    fn run(&self, stretch: &Stretch, range: Range<usize>, plan: &SharedPlan, memory: &Memory, me: usize) {
        if let Some(rank) = stretch.from {
            let target_range = stretch.target + range.start..stretch.target + range.end;
            let source = if rank == me && !stretch.of_output {
                let at = stretch.source + range.start;
                memory.address(Buffer::Input, &(at..at + range.len())).cast_const()
            } else {
                self.source(rank, stretch.of_output, stretch.source + range.start, range.len())
            };
            if std::ptr::eq(source, memory.address(Buffer::Output, &target_range)) {
                return;
            }
            // SAFETY: the target is this rank's own and nobody else touches it now: of an output that others read in the
            // same stage they read another part. The source isn't written before its owner has seen that all have read
            // it; it is another rank's memory, or apart from the target.
            let (target, source) = unsafe {
                (memory.write(Buffer::Output, target_range), std::slice::from_raw_parts(source, range.len()))
            };
            return if plan.outgrows_caches() {
                copy_past_caches(target, source)
            } else {
                target.copy_from_slice(source)
            };
        }
        let size = plan.program.size as usize;
        let mut at = range.start;
        while at < range.end {
            let bytes = FOLD_BYTES.min(range.end - at);
            let of = |rank: usize| self.source(rank, false, stretch.source + at, bytes);
            let sources: SmallVec<[*const u8; 8]> = (0..size).map(of).collect();
            let target = memory.address(Buffer::Output, &(stretch.target + at..stretch.target + at + bytes));
            let elements = bytes / plan.element_bytes;
            // SAFETY: `source` and `address` have checked all ranges; nobody writes the inputs before all have said that
            // they have read them, but in place this rank its own part, which nobody else reads; that is then exactly
            // this rank's source.
            unsafe {
                plan.kernel.fold(target, &sources, elements);
                if plan.kernel.op() == ReduceOp::Avg {
                    plan.kernel.finish(plan.program.size, target, elements);
                }
            }
            at += bytes;
        }
    }
}

/// A stage's work, in the order in which it is done.
fn stretches(plan: &SharedPlan, stage: usize, me: usize) -> impl Iterator<Item = Stretch> {
    let (size, root) = (plan.program.size as usize, plan.program.root as usize);
    let (collective, bytes) = (plan.collective, plan.even_bytes().expect("blocks of one length"));
    // This rank's neighbours first, so that not all read the same rank's memory at the same time.
    (0..size).map(move |k| (me + k) % size).filter_map(move |rank| {
        let copy =
            |of_output, source, target, bytes| Some(Stretch { from: Some(rank), of_output, source, target, bytes });
        let fold = |source, target, bytes| Some(Stretch { from: None, of_output: false, source, target, bytes });
        let part = |rank: usize| {
            let width = bytes.div_ceil(size).next_multiple_of(PART_ALIGN);
            (rank * width).min(bytes)..((rank + 1) * width).min(bytes)
        };
        match (collective, stage) {
            (Collective::AllReduce, 0) if rank == me => fold(part(me).start, part(me).start, part(me).len()),
            (Collective::AllReduce, 1) if rank != me => {
                copy(true, part(rank).start, part(rank).start, part(rank).len())
            }
            (Collective::ReduceScatter, _) if rank == me => fold(me * bytes, 0, bytes),
            (Collective::AllGather, _) => copy(false, 0, rank * bytes, bytes),
            (Collective::AllToAll, _) => copy(false, me * bytes, rank * bytes, bytes),
            (Collective::Broadcast, _) if rank == root => copy(false, 0, 0, bytes),
            _ => None,
        }
    })
}
