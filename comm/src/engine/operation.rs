//! One call under way on one rank: its lanes, its memory, and what it waits for.

use smallvec::SmallVec;

use paceline_transport::{Channel, Endpoint, Loan};

use super::channels::{Channels, LANE_BITS, Naming};
use super::exchange::Exchange;
use super::lane::{DONE, Lane};
use super::memory::Memory;
use super::plan::{Plan, Shapes, SharedPlan};
use super::stamp::Stamps;
use super::straight::Stage;
use super::walk::{Fault, Walk};
use super::windows::{Outcome, Windows};
use crate::reduce::ReduceOp;
use crate::schedule::{Buffer, Step};

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

/// Lanes up to which a call takes no memory of its own: small calls are made often.
const LANES_INLINE: usize = 1;

/// A call under way.
#[derive(Debug)]
pub(crate) struct Operation {
    /// The memory, as far as it is lent to the links: given back before anything else goes.
    loans: Option<Loans>,
    pub(crate) plan: SharedPlan,
    pub(crate) memory: Memory,
    pub(crate) channels: Channels,
    pub(crate) naming: Naming,
    pub(crate) stamps: Stamps,
    lanes: SmallVec<[Lane; LANES_INLINE]>,
    unfinished: usize,
    beside: Beside,
}

/// What a call has lent.
pub(super) type Loans = SmallVec<[Loan; 2]>;

/// What runs a call in place of its program.
#[derive(Debug)]
pub(crate) enum Beside {
    /// The program runs.
    Nothing,
    /// The boards; the program runs after all if a message turns out to be too long for them.
    Exchange(Exchange),
    /// Registered memory, if all ranks have it there; if not, the program runs after all.
    Windows(Box<Windows>),
}

impl Operation {
    /// A call.
    pub(crate) fn new(
        plan: SharedPlan,
        memory: Memory,
        channels: Channels,
        naming: Naming,
        stamps: Stamps,
        beside: Beside,
    ) -> Box<Operation> {
        assert!(plan.lanes <= 1 << LANE_BITS, "{} lanes need more bits in a channel's number", plan.lanes);
        let (lanes, unfinished) = (SmallVec::new(), plan.slices);
        let loans = None;
        let mut operation =
            Box::new(Operation { loans, plan, memory, channels, naming, stamps, lanes, unfinished, beside });
        for number in 0..operation.plan.lanes {
            let lane = Lane::new(&operation.plan, number, number);
            operation.lanes.push(lane);
        }
        operation
    }

    /// A call over the boards that has begun.
    pub(super) fn begun(
        plan: SharedPlan,
        memory: Memory,
        channels: Channels,
        naming: Naming,
        stamps: Stamps,
        exchange: Exchange,
    ) -> Box<Operation> {
        Operation::new(plan, memory, channels, naming, stamps, Beside::Exchange(exchange))
    }

    /// A call of one slice that has come to `stage`.
    pub(super) fn resumed(
        plan: SharedPlan,
        memory: Memory,
        channels: Channels,
        stamps: Stamps,
        stage: Stage,
    ) -> Box<Operation> {
        let mut operation = Operation::new(plan, memory, channels, Naming::Whole, stamps, Beside::Nothing);
        let lane = &mut operation.lanes[0];
        lane.round = stage.round;
        lane.open_round(&operation.plan);
        for (place, moved) in lane.moved.iter_mut().enumerate() {
            let sent = stage.in_parts.filter(|(step, _)| *step == place).map_or(0, |(_, bytes)| bytes);
            *moved = if stage.has_ended(place) { DONE } else { sent };
        }
        operation
    }

    /// A message that has begun: so many bytes are `sent`, or all with `None`; and it is `received`, or nothing of it.
    pub(super) fn message(
        plan: SharedPlan,
        memory: Memory,
        channels: Channels,
        naming: Naming,
        stamps: Stamps,
        loans: Loans,
        (sent, received): (Option<usize>, bool),
    ) -> Box<Operation> {
        let mut operation = Operation::new(plan, memory, channels, naming, stamps, Beside::Nothing);
        operation.loans = Some(loans);
        let lane = &mut operation.lanes[0];
        for (moved, step) in lane.moved.iter_mut().zip(operation.plan.program.steps_of(0)) {
            *moved = match step {
                Step::Send { .. } => sent.unwrap_or(DONE),
                _ if received => DONE,
                _ => 0,
            };
        }
        operation
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
        match &mut self.beside {
            Beside::Nothing => {}
            Beside::Exchange(exchange) => {
                let posting = self.plan.posting.as_ref().expect("a call over the boards has a posting");
                moved = exchange.progress((&self.plan, posting), &self.memory, &self.stamps, endpoint)?;
                match (exchange.done, exchange.unfit) {
                    (false, _) => return Ok(moved),
                    (true, false) => {
                        self.unfinished = 0;
                        return Ok(moved);
                    }
                    (true, true) => self.beside = Beside::Nothing,
                }
            }
            Beside::Windows(windows) => {
                moved = windows.progress(&self.plan, &self.memory, &self.stamps, endpoint)?;
                match windows.outcome() {
                    None => return Ok(moved),
                    Some(Outcome::Done) => self.unfinished = 0,
                    Some(Outcome::Unfit) => self.beside = Beside::Nothing,
                }
                if self.is_done() {
                    return Ok(moved);
                }
            }
        }
        if self.loans.is_none() {
            // SAFETY: the operation drops its loans first, and the engine has the links forget them if the call fails.
            self.loans = Some(unsafe { self.memory.lend(endpoint) });
        }
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
        let channel = self.channels.of(0, true);
        let on_board = move |peer| Waiting { peer, channel, receives: true, round: 0, step: peer, chunk: peer as u32 };
        let exchange = match &self.beside {
            Beside::Nothing => None,
            Beside::Exchange(exchange) => Some(exchange),
            Beside::Windows(windows) => Some(windows.exchange()),
        };
        let lanes = if exchange.is_some() { None } else { Some(self.waiting_in_lanes()) };
        exchange.into_iter().flat_map(Exchange::awaits).map(on_board).chain(lanes.into_iter().flatten())
    }

    fn waiting_in_lanes(&self) -> impl Iterator<Item = Waiting> {
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

/// What is left to do when a slice's program has ended: an average's division.
pub(super) fn finish(plan: &Plan, memory: &Memory, shapes: &Shapes) {
    if plan.kernel.op() != ReduceOp::Avg {
        return;
    }
    let chunks = plan.summed_chunks();
    if chunks > 0 {
        let range = shapes.output.range(0, chunks);
        let elements = range.len() / plan.element_bytes;
        let target = memory.address(Buffer::Output, &range);
        // SAFETY: `address` has checked the range, and the slice's program has ended: no step touches it any more.
        unsafe { plan.kernel.finish(plan.program.size, target, elements) };
    }
}
