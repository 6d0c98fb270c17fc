//! One call under way on one rank: its lanes, its memory, and how it moves on.

use paceline_transport::{Channel, Endpoint, LinkError, Stamp};

use super::memory::Memory;
use super::plan::{Shapes, SharedPlan};
use super::stamp::Stamps;
use crate::collective::Collective;
use crate::reduce::ReduceOp;
use crate::schedule::{Buffer, Rank, Step};

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
    /// The peer sends more than the schedule says.
    Length { arrived: usize, wanted: usize },
}

/// What a call waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiting {
    pub(crate) peer: usize,
    pub(crate) channel: Channel,
    pub(crate) receives: bool,
    pub(crate) round: usize,
    pub(crate) step: usize,
    /// The first chunk of the span that is awaited.
    pub(crate) chunk: u32,
}

/// Which byte streams a call uses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Channels {
    /// A collective: one channel per lane, on every link.
    Collective { sequence: u64 },
    /// Messages between two ranks, numbered per pair and direction.
    Messages { sending: u64, receiving: u64 },
}

const MESSAGE_BIT: u64 = 1 << 63;
const LANE_BITS: u32 = 4;

impl Channels {
    #[inline]
    fn of(self, lane: usize, receives: bool) -> Channel {
        let number = match self {
            Channels::Collective { sequence } => sequence,
            Channels::Messages { sending, .. } if !receives => sending | MESSAGE_BIT >> LANE_BITS,
            Channels::Messages { receiving, .. } => receiving | MESSAGE_BIT >> LANE_BITS,
        };
        Channel(number << LANE_BITS | lane as u64)
    }

    /// The collective's number that a channel belongs to, if it belongs to a collective.
    pub(crate) fn collective_of(channel: Channel) -> Option<u64> {
        (channel.0 & MESSAGE_BIT == 0).then_some(channel.0 >> LANE_BITS)
    }
}

/// Which ranks of the links a program's rank numbers mean.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Naming {
    /// The program is written for all ranks.
    Whole,
    /// The program is written for two: rank 0 sends to `to`, and receives from `from`.
    Pair { to: usize, from: usize },
}

impl Naming {
    #[inline(always)]
    fn target(self, rank: Rank) -> usize {
        match self {
            Naming::Whole => rank as usize,
            Naming::Pair { to, .. } => to,
        }
    }

    #[inline(always)]
    fn source(self, rank: Rank) -> usize {
        match self {
            Naming::Whole => rank as usize,
            Naming::Pair { from, .. } => from,
        }
    }
}

/// A call under way.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) plan: SharedPlan,
    pub(crate) memory: Memory,
    pub(crate) channels: Channels,
    pub(crate) naming: Naming,
    pub(crate) stamps: Stamps,
    lanes: Vec<Lane>,
    unfinished: usize,
}

#[derive(Debug)]
struct Lane {
    number: usize,
    slice: usize,
    shapes: Shapes,
    round: usize,
    /// Per step of the round, bytes moved, or `DONE`.
    moved: Vec<usize>,
    /// Elements of which only a part has arrived.
    parts: Vec<Part>,
    finished: bool,
}

/// The front of an element that a link has split, until the rest arrives.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// The step that receives it.
    place: usize,
    bytes: [u8; ELEMENT_BYTES_MAX],
    len: usize,
}

/// The largest element.
const ELEMENT_BYTES_MAX: usize = 16;

const DONE: usize = usize::MAX;

impl Operation {
    pub(crate) fn new(
        plan: SharedPlan,
        memory: Memory,
        channels: Channels,
        naming: Naming,
        stamps: Stamps,
    ) -> Operation {
        assert!(plan.lanes <= 1 << LANE_BITS, "{} lanes need more bits in a channel's number", plan.lanes);
        let lanes: Vec<Lane> = (0..plan.lanes).map(|number| Lane::new(&plan, number, number)).collect();
        let unfinished = plan.slices;
        Operation { plan, memory, channels, naming, stamps, lanes, unfinished }
    }

    /// Whether all of it is done.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.unfinished == 0
    }

    /// Moves everything on as far as it goes now; whether anything moved.
    #[inline]
    pub(crate) fn progress(&mut self, endpoint: &mut Endpoint) -> Result<bool, Fault> {
        let mut moved = false;
        for number in 0..self.lanes.len() {
            moved |= self.progress_lane(number, endpoint)?;
        }
        Ok(moved)
    }

    fn progress_lane(&mut self, number: usize, endpoint: &mut Endpoint) -> Result<bool, Fault> {
        let mut moved = false;
        loop {
            let lane = &mut self.lanes[number];
            if lane.finished {
                return Ok(moved);
            }
            if lane.round == self.plan.program.n_rounds() {
                finish(&self.plan, &self.memory, &lane.shapes);
                self.unfinished -= 1;
                moved = true;
                // Fixed beforehand, so that every rank runs a slice on the same lane whichever lane is first to be free.
                let next = lane.slice + self.plan.lanes;
                if next < self.plan.slices {
                    *lane = Lane::new(&self.plan, number, next);
                } else {
                    lane.finished = true;
                }
                continue;
            }
            let mut walk = Walk {
                plan: &self.plan,
                memory: &self.memory,
                channels: self.channels,
                naming: self.naming,
                stamps: &self.stamps,
                endpoint,
                moved: false,
            };
            let ended = walk.round(lane)?;
            moved |= walk.moved;
            if !ended {
                return Ok(moved);
            }
            lane.round += 1;
            lane.open_round(&self.plan);
        }
    }

    /// What the call waits for, lane by lane, step by step.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Waiting> {
        self.lanes.iter().filter(|lane| !lane.finished).flat_map(|lane| {
            let steps = self.plan.program.steps_of(lane.round);
            steps.iter().enumerate().filter(|(place, _)| lane.moved[*place] != DONE).filter_map(|(place, step)| {
                let at = |peer, receives, chunk| Waiting {
                    peer,
                    channel: self.channels.of(lane.number, receives),
                    receives,
                    round: lane.round,
                    step: place,
                    chunk,
                };
                match step {
                    Step::Send { to, source } => Some(at(self.naming.target(*to), false, source.like)),
                    Step::Recv { from, target } | Step::RecvReduce { from, target, .. } => {
                        Some(at(self.naming.source(*from), true, target.like))
                    }
                    Step::Copy { .. } | Step::Reduce { .. } => None,
                }
            })
        })
    }
}

impl Lane {
    fn new(plan: &SharedPlan, number: usize, slice: usize) -> Lane {
        let mut lane = Lane {
            number,
            slice,
            shapes: plan.shapes(slice),
            round: 0,
            moved: Vec::new(),
            parts: Vec::new(),
            finished: false,
        };
        lane.open_round(plan);
        lane
    }

    #[inline]
    fn open_round(&mut self, plan: &SharedPlan) {
        self.moved.clear();
        if self.round < plan.program.n_rounds() {
            self.moved.resize(plan.program.steps_of(self.round).len(), 0);
        }
    }
}

/// One look at the steps of a lane's round.
struct Walk<'a> {
    plan: &'a SharedPlan,
    memory: &'a Memory,
    channels: Channels,
    naming: Naming,
    stamps: &'a Stamps,
    endpoint: &'a mut Endpoint,
    moved: bool,
}

impl Walk<'_> {
    /// Moves the open steps on; whether all have ended.
    #[inline]
    fn round(&mut self, lane: &mut Lane) -> Result<bool, Fault> {
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
                let got = self.endpoint.recv_into(peer, channel, target);
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
                let (from, to) = (range(source), range(target));
                assert_eq!(from.len(), to.len(), "a copy keeps its length");
                let (source, target) =
                    (self.memory.address(source.buffer, &from), self.memory.address(target.buffer, &to));
                if !std::ptr::eq(source, target) {
                    // SAFETY: `address` has checked both ranges; they are the same (skipped) or disjoint, and no other
                    // step of the round writes the one or touches the other (schedule rule 2).
                    unsafe { std::ptr::copy_nonoverlapping(source, target, from.len()) };
                }
                Ok(DONE)
            }
            Step::Reduce { source, runs, target } => {
                let to = range(target);
                let elements = to.len() / self.plan.element_bytes;
                let first = range(source);
                let stride = self.plan.run_stride(target.count);
                let run = |k: u32| {
                    let start = first.start + k as usize * stride;
                    self.memory.address(Buffer::Scratch, &(start..start + to.len())).cast_const()
                };
                let target = self.memory.address(target.buffer, &to);
                fold_runs(self.plan, target, *runs, run, elements);
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

fn fold_runs(plan: &SharedPlan, target: *mut u8, runs: u32, run: impl Fn(u32) -> *const u8, elements: usize) {
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
    // SAFETY: `run` and the caller have checked every range; the runs are scratch, which no other step of the round
    // writes, and the target is disjoint from them or one of them (schedule rule 2).
    unsafe { plan.kernel.fold(target, sources, elements) };
}

/// What is left to do when a slice's program has ended: an average's division.
fn finish(plan: &SharedPlan, memory: &Memory, shapes: &Shapes) {
    if plan.kernel.op() != ReduceOp::Avg {
        return;
    }
    let holds = match plan.collective {
        Collective::AllReduce => Some(plan.program.chunks),
        Collective::Reduce => (plan.program.me == plan.program.root).then_some(plan.program.chunks),
        Collective::ReduceScatter => Some(1),
        _ => None,
    };
    if let Some(chunks) = holds {
        let range = shapes.output.range(0, chunks);
        let elements = range.len() / plan.element_bytes;
        let target = memory.address(Buffer::Output, &range);
        // SAFETY: `address` has checked the range, and the slice's program has ended: no step touches it any more.
        unsafe { plan.kernel.finish(plan.program.size, target, elements) };
    }
}
