//! From a request to a call that the engine can run.

use std::any::Any;
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::Communicator;
use super::windows::WORTH_BYTES;
use crate::algorithm::Row;
use crate::collective::Collective;
use crate::engine::{
    Active, Beside, Channels, Exchange, Fingerprint, Memory, Naming, Operation, Plan, SharedPlan, Slicing, Stamps, Turn,
};
use crate::error::{CallName, Result};
use crate::reduce::{Kernel, ReduceOp};
use crate::request::{Request, Sound};
use crate::schedule::{Program, Step, input, output};
use crate::select::Choice;

/// Plans of calls made before, newest first.
#[derive(Default)]
pub(super) struct Plans {
    recent: Mutex<Vec<(PlanKey, Choice, SharedPlan)>>,
    messages: Mutex<Vec<(MessageKey, SharedPlan)>>,
}

/// What the plan of a message depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct MessageKey {
    collective: Collective,
    with_itself: bool,
    element_bytes: usize,
    /// Elements sent and received.
    counts: (u64, u64),
}

const PLANS_KEPT: usize = 64;
const MESSAGE_PLANS_KEPT: usize = 16;

/// What a plan depends on, for calls with blocks of one length: the call, but for its row, and the row wished for.
#[derive(Clone, PartialEq, Eq, Debug)]
struct PlanKey {
    fingerprint: Fingerprint,
    wish: Option<String>,
}

impl Plans {
    fn find(
        &self,
        fingerprint: Fingerprint,
        wish: &Option<String>,
        make: impl FnOnce() -> Result<(Choice, Plan)>,
    ) -> Result<(Choice, SharedPlan)> {
        let mut recent = self.recent.lock().expect("no panic while held");
        let known = recent.iter().position(|(key, ..)| key.fingerprint == fingerprint && key.wish == *wish);
        if let Some(place) = known {
            recent[..=place].rotate_right(1);
            return Ok((recent[0].1, recent[0].2.clone()));
        }
        let (choice, plan) = make()?;
        let plan = Arc::new(plan);
        recent.truncate(PLANS_KEPT - 1);
        recent.insert(0, (PlanKey { fingerprint, wish: wish.clone() }, choice, plan.clone()));
        Ok((choice, plan))
    }
}

impl Plans {
    fn message(&self, key: MessageKey, make: impl FnOnce() -> Plan) -> SharedPlan {
        let mut recent = self.messages.lock().expect("no panic while held");
        if let Some(place) = recent.iter().position(|(known, _)| *known == key) {
            recent[..=place].rotate_right(1);
            return recent[0].1.clone();
        }
        let plan = Arc::new(make());
        recent.truncate(MESSAGE_PLANS_KEPT - 1);
        recent.insert(0, (key, plan.clone()));
        plan
    }
}

/// A call that may run as soon as it has its number.
pub(super) struct Prepared {
    plan: SharedPlan,
    sound: Sound,
    naming: Naming,
    stamps: Stamps,
    /// A copy of the input that the call uses instead.
    own_input: Option<Vec<u8>>,
}

impl Communicator {
    /// Checks a request and makes it ready. Nothing moves.
    pub(super) fn prepare(&self, request: Request<'_>) -> Result<Prepared> {
        let (op, root, source, collective) = (request.op, request.root, request.source, request.collective);
        let data_type = request.data_type;
        let sound = request.check(self.inner.rank, self.inner.size)?;
        let kernel = Kernel::of(data_type, op);
        match collective {
            Collective::Send | Collective::Recv | Collective::SendRecv => {
                let naming =
                    Naming::Pair { to: root, from: if collective == Collective::SendRecv { source } else { root } };
                let (with_itself, element_bytes) = (root == self.inner.rank, data_type.size());
                let key = MessageKey { collective, with_itself, element_bytes, counts: sound.message };
                let plan = self.inner.plans.message(key, || {
                    let program = messages(collective, with_itself);
                    let extent = sound.extent.clone();
                    Plan::new(collective, "message", program, kernel, element_bytes, extent, Slicing::UNCUT)
                });
                let (sends, expects) = sound.message;
                let stamps = Stamps::message(sound.fingerprint, sends, expects);
                return Ok(Prepared { plan, sound, naming, stamps, own_input: None });
            }
            _ => {}
        }
        let uneven = sound.fingerprint.uneven;
        let make = || {
            // Of an uneven all_to_all every rank knows only its own bytes, and all must choose the same row.
            let known_bytes = if sound.pairs.is_some() { 0 } else { sound.message_bytes };
            let choice = self.inner.facts.choose(collective, known_bytes, uneven, &self.options)?;
            let program = self.inner.facts.program(choice.row, self.inner.rank, root);
            let slicing = if choice.row.moves_runs { Slicing::UNCUT } else { self.inner.facts.slicing() };
            let (size, extent) = (data_type.size(), sound.extent.clone());
            let plan = Plan::new(collective, choice.row.name, program, kernel, size, extent, slicing);
            let on_boards = self.inner.facts.on_boards(choice.row, known_bytes, uneven);
            Ok((choice, if on_boards { plan.on_boards() } else { plan }))
        };
        let (choice, plan) = if uneven {
            make().map(|(choice, plan)| (choice, Arc::new(plan)))?
        } else {
            self.inner.plans.find(sound.fingerprint, &self.options.algorithm, make)?
        };
        let fingerprint = Fingerprint { row: choice.number as u8, ..sound.fingerprint };
        let stamps = Stamps::collective(fingerprint, sound.pairs.clone());
        let mut prepared = Prepared { plan, sound, naming: Naming::Whole, stamps, own_input: None };
        prepared.replace_input(&kernel, choice.row);
        Ok(prepared)
    }

    /// The numbers of the next message between this rank and others.
    #[inline]
    pub(super) fn next_message(&self, collective: Collective, (to, from): (usize, usize)) -> (Channels, u64) {
        let next = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed) + 1;
        let sending = if collective == Collective::Recv { 0 } else { next(&self.inner.sent[to]) };
        let receiving = if collective == Collective::Send { 0 } else { next(&self.inner.received[from]) };
        (Channels::Messages { sending, receiving }, sending.max(receiving))
    }

    /// Gives a prepared call its number; from here on it must run.
    pub(super) fn activate(&self, prepared: Prepared, keep: Option<Arc<dyn Any + Send + Sync>>) -> Active {
        let history = match prepared.naming {
            Naming::Whole => self.inner.note_in_history(&prepared.stamps),
            Naming::Pair { .. } => 0,
        };
        let beside = if prepared.plan.posting.is_some() {
            let number = self.inner.next_turns(1);
            Beside::Exchange(Exchange::new(Turn { number, history }))
        } else {
            self.over_windows(&prepared, history).map_or(Beside::Nothing, |windows| Beside::Windows(Box::new(windows)))
        };
        let Prepared { plan, sound, naming, stamps, own_input } = prepared;
        let (channels, sequence) = match naming {
            Naming::Whole => {
                let sequence = self.next_sequence();
                (Channels::Collective { sequence }, sequence)
            }
            Naming::Pair { to, from } => self.next_message(plan.collective, (to, from)),
        };
        let call = CallName {
            collective: plan.collective,
            sequence,
            algorithm: Cow::Borrowed(plan.row),
            size: self.inner.size,
        };
        // SAFETY: the request's buffers are lent until the call has ended: by the borrow of whoever waits for it, by
        // `keep`, which the engine drops after the operation, or by whoever called `start_request`. They were found long enough
        // and apart, or in place.
        let memory = unsafe { Memory::new(sound.input, sound.output, plan.scratch_bytes(), own_input) };
        let operation = Operation::new(plan, memory, channels, naming, stamps, beside);
        Active::new(operation, call, self.timeout(), keep)
    }
}

impl Prepared {
    /// Whether messages like this one may run the short way.
    pub(super) fn is_quick_message(&self, me: usize) -> bool {
        matches!(self.naming, Naming::Pair { to, from } if to != me && from != me)
    }

    pub(super) fn naming(&self) -> Naming {
        self.naming
    }

    /// Whether calls like this one may run over the boards with their buffers as they are.
    pub(super) fn is_quick(&self) -> bool {
        self.plan.posting.is_some() && self.takes_input_as_it_is()
    }

    /// Whether calls like this one may run over links the short way, with their buffers as they are.
    pub(super) fn is_small(&self) -> bool {
        let is_whole = matches!(self.naming, Naming::Whole) && self.plan.slices == 1;
        is_whole && self.message_bytes() < WORTH_BYTES && self.takes_input_as_it_is()
    }

    fn takes_input_as_it_is(&self) -> bool {
        self.own_input.is_none() && !matches!(self.plan.kernel.op(), ReduceOp::PreMulSum(_))
    }

    pub(super) fn plan(&self) -> &SharedPlan {
        &self.plan
    }

    pub(super) fn stamps(&self) -> &Stamps {
        &self.stamps
    }

    /// Bytes of the message, as the choice of a row sees it.
    pub(super) fn message_bytes(&self) -> usize {
        self.sound.message_bytes
    }

    /// Whether this rank's output covers what other ranks would still read of its input, if they read it in place.
    pub(super) fn overwrites_what_others_read(&self) -> bool {
        self.sound.in_place && self.plan.collective == Collective::AllToAll
    }

    /// The input and the output, by address and length.
    pub(super) fn places(&self) -> ((*const u8, usize), (*mut u8, usize)) {
        (self.sound.input, self.sound.output)
    }

    /// Scales the input, or copies it out of the way, where the row or the operator needs it.
    ///
    /// The plan's own kernel may be that of an earlier call with another factor; `kernel` is this call's.
    fn replace_input(&mut self, kernel: &Kernel, row: &Row) {
        let scales = matches!(kernel.op(), ReduceOp::PreMulSum(_)) && row.collective.reduces();
        let moves = self.sound.in_place && (!row.in_place || self.sound.shifts_blocks());
        if !scales && !moves {
            return;
        }
        let (start, bytes) = self.sound.input;
        let mut own = vec![0u8; bytes];
        if scales {
            let elements = bytes / self.plan.element_bytes;
            // SAFETY: `own` is as long as the input, which is readable for `bytes` (`Request::check`).
            unsafe { kernel.scale(own.as_mut_ptr(), start, elements) };
        } else {
            // SAFETY: as above.
            own.copy_from_slice(unsafe { std::slice::from_raw_parts(start, bytes) });
        }
        self.sound.input = (own.as_ptr(), bytes);
        self.own_input = Some(own);
    }
}

/// A message as a program for two: this rank is 0, whoever is at the other end is 1.
fn messages(collective: Collective, with_itself: bool) -> Program {
    let mut program = Program::new(0, 2, 0, 1);
    let send = Step::Send { to: 1, source: input(0) };
    let recv = Step::Recv { from: 1, target: output(0) };
    match collective {
        _ if with_itself => program.round([Step::Copy { source: input(0), target: output(0) }]),
        Collective::Send => program.round([send]),
        Collective::Recv => program.round([recv]),
        _ => program.round([send, recv]),
    }
    program
}
