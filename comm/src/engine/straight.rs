//! The program of a small call with its places worked out, for messages that go whole or not at all. What is in parts, late or
//! wrong is left to [`Operation`](super::operation::Operation), which goes on from the same place.

use std::ops::Range;

use paceline_transport::{Channel, Endpoint};

use super::channels::{Channels, Naming};
use super::memory::Memory;
use super::operation::finish;
use super::plan::{Plan, Shapes};
use super::stamp::Stamps;
use super::walk;
use crate::schedule::Step;

/// The longest message: nothing of it is lent to links, and links take it at once.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// The most scratch, which is kept from call to call.
const SCRATCH_BYTES_MAX: usize = 256 << 10;
/// The most steps of a round.
const STEPS_MAX: usize = 64;

/// The program of a call of one slice.
#[derive(Debug)]
pub(crate) struct Straight {
    rounds: Box<[Box<[Leg]>]>,
    shapes: Shapes,
}

/// A step, and where the bytes are that it reads and writes.
#[derive(Debug)]
struct Leg {
    step: Step,
    source: Range<usize>,
    target: Range<usize>,
    /// The step of the round that must have ended before.
    after: Option<usize>,
}

/// How far a call has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Stage {
    pub(super) round: usize,
    /// Which steps of the round have ended, a bit for each.
    pub(super) ended: u64,
    /// A step that has sent so many bytes of its message.
    pub(super) in_parts: Option<(usize, usize)>,
}

impl Stage {
    /// Whether a step of the round has ended.
    #[inline]
    pub(super) fn has_ended(&self, place: usize) -> bool {
        place < STEPS_MAX && self.ended & 1 << place != 0
    }
}

/// What came of a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Look {
    Nothing,
    Moved,
    /// The call has ended.
    Done,
    /// There is something that isn't a whole message of this call.
    Otherwise,
}

/// What came of a look at one step.
enum Outcome {
    Waits,
    Ended,
    Otherwise,
}

/// A call that runs straight.
pub(super) struct Runner<'a> {
    pub(super) plan: &'a Plan,
    pub(super) memory: &'a Memory,
    pub(super) stamps: &'a Stamps,
    pub(super) channels: Channels,
}

impl Straight {
    /// `None` of calls that are cut, and of those with longer messages, more scratch or more steps in a round.
    pub(crate) fn of(plan: &Plan) -> Option<Straight> {
        if plan.slices != 1 || plan.posting.is_some() || plan.scratch_bytes() > SCRATCH_BYTES_MAX {
            return None;
        }
        let shapes = plan.shapes(0);
        let leg = |round: usize, place: usize, step: &Step| {
            let (source, target) = match step {
                Step::Send { source, .. } => (Some(source), None),
                Step::Recv { target, .. } => (None, Some(target)),
                Step::RecvReduce { source, target, .. }
                | Step::Copy { source, target }
                | Step::Reduce { source, target, .. } => (Some(source), Some(target)),
            };
            let [source, target] = [source, target].map(|span| span.map_or(0..0, |span| plan.range(span, &shapes, 0)));
            Leg { step: *step, source, target, after: plan.before(round, place) }
        };
        let legs = |round| plan.program.steps_of(round).iter().enumerate().map(move |(at, step)| leg(round, at, step));
        let rounds: Box<[Box<[Leg]>]> = (0..plan.program.n_rounds()).map(|round| legs(round).collect()).collect();
        let fits = |leg: &Leg| leg.source.len().max(leg.target.len()) <= MESSAGE_BYTES_MAX;
        let all_fit = rounds.iter().all(|legs| legs.len() <= STEPS_MAX && legs.iter().all(fits));
        all_fit.then_some(Straight { rounds, shapes })
    }

    /// Moves a call on as far as it goes now.
    #[inline]
    pub(super) fn look(&self, call: &Runner<'_>, stage: &mut Stage, endpoint: &mut Endpoint) -> Look {
        let mut look = Look::Nothing;
        loop {
            let Some(legs) = self.rounds.get(stage.round) else {
                finish(call.plan, call.memory, &self.shapes);
                return Look::Done;
            };
            let mut all = true;
            for (place, leg) in legs.iter().enumerate() {
                if stage.has_ended(place) {
                    continue;
                }
                if leg.after.is_some_and(|earlier| !stage.has_ended(earlier)) {
                    all = false;
                    continue;
                }
                match call.step(leg, place, stage, endpoint) {
                    Outcome::Ended => (stage.ended, look) = (stage.ended | 1 << place, Look::Moved),
                    Outcome::Waits => all = false,
                    Outcome::Otherwise => return Look::Otherwise,
                }
            }
            if !all {
                return look;
            }
            *stage = Stage { round: stage.round + 1, ..Stage::default() };
        }
    }
}

impl Runner<'_> {
    #[inline]
    fn step(&self, leg: &Leg, place: usize, stage: &mut Stage, endpoint: &mut Endpoint) -> Outcome {
        match &leg.step {
            Step::Send { to, source } => {
                let peer = Naming::Whole.target(*to);
                // SAFETY: no other step of the round writes what this one reads (schedule rule 2), and a span is inside
                // its buffer or `read` panics.
                let message = unsafe { self.memory.read(source.buffer, leg.source.clone()) };
                match endpoint.send(peer, self.channels.of(0, false), self.stamps.to(peer), message) {
                    Ok(Some(bytes)) if bytes == message.len() => Outcome::Ended,
                    Ok(Some(bytes)) => {
                        stage.in_parts = Some((place, bytes));
                        Outcome::Otherwise
                    }
                    Ok(None) => Outcome::Waits,
                    Err(_) => Outcome::Otherwise,
                }
            }
            Step::Recv { from, target } => {
                // SAFETY: no other step of the round touches what this one writes (schedule rule 2), and no schedule
                // writes to the input (the checker).
                let target = unsafe { self.memory.write(target.buffer, leg.target.clone()) };
                self.take(*from as usize, target.len(), endpoint, |bytes| target.copy_from_slice(bytes))
            }
            Step::RecvReduce { from, source, target } => {
                let mine = self.memory.address(source.buffer, &leg.source);
                let target = self.memory.address(target.buffer, &leg.target);
                let elements = leg.target.len() / self.plan.element_bytes;
                self.take(*from as usize, leg.target.len(), endpoint, |bytes| {
                    // SAFETY: `address` has checked both ranges, which are as long as `bytes`; `mine` and `target` are the
                    // same bytes or disjoint, and no other step of the round touches them (schedule rule 2).
                    unsafe { self.plan.kernel.combine(target, mine, bytes.as_ptr(), elements) };
                })
            }
            Step::Copy { source, target } => {
                walk::copy(self.memory, (source.buffer, &leg.source), (target.buffer, &leg.target));
                Outcome::Ended
            }
            Step::Reduce { runs, target, .. } => {
                walk::fold(self.plan, self.memory, (*runs, target), (leg.source.start, &leg.target));
                Outcome::Ended
            }
        }
    }

    /// Gives the message from a rank to `taken`, if it is there.
    #[inline]
    fn take(&self, peer: usize, bytes: usize, endpoint: &mut Endpoint, taken: impl FnOnce(&[u8])) -> Outcome {
        let channel: Channel = self.channels.of(0, true);
        let head = match endpoint.head(peer, channel) {
            Ok(Some(head)) => head,
            Ok(None) => return Outcome::Waits,
            Err(_) => return Outcome::Otherwise,
        };
        if head.left != bytes || head.bytes.len() != bytes || head.stamp != self.stamps.from(peer) {
            return Outcome::Otherwise;
        }
        taken(head.bytes);
        endpoint.advance(peer, channel, bytes);
        Outcome::Ended
    }
}
