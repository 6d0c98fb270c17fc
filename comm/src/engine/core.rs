//! The engine: runs every call of one rank to its end, or to an error that says why not.
//!
//! Whoever holds the core drives all calls under way, their own and others'. The loop looks at every call, wakes the
//! peers that have something to see, and when nothing moved spins, yields and at last sleeps (`wait`). Everything that
//! costs (the clock, news of peers, deadlines) is looked at only when nothing moves.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use paceline_transport::sim::RankStep;
use paceline_transport::{Clock, Endpoint, Time};

use super::active::Active;
use super::attention::{Attention, Stop};
use super::channels::Channels;
use super::fault;
use super::kin::{Doing, Kin};
use super::memory::Scratch;
use super::notice::Notice;
use super::wait::{Pause, WaitPolicies, Waiter};
use super::walk::{Fault, FaultCause};
use super::witness::Witness;
use crate::error::{Error, ErrorKind, Result};

/// How long a failed link's reason is waited for.
pub(crate) const REASON_WITHIN: Duration = Duration::from_millis(300);

/// How often a caller who waits asks whether to give up.
pub(crate) const ASKS_EVERY: Duration = Duration::from_millis(100);

/// One rank's engine.
pub(crate) struct Core {
    pub(crate) endpoint: Endpoint,
    pub(crate) active: Vec<Active>,
    /// What it takes to report on failures.
    pub(crate) witness: Witness,
    /// Why nothing works any more.
    pub(crate) dead: Option<Error>,
    pub(crate) clock: Clock,
    pub(crate) policies: WaitPolicies,
    pub(crate) kin: Kin,
    /// Each rank's number in the world.
    pub(crate) members: Arc<[usize]>,
    /// What this rank does in another of its communicators, while it answers for this one.
    pub(crate) beside: Option<Doing>,
    /// When to answer for the others again.
    pub(crate) next_answer: Time,
    /// When a caller who waits asks again whether to give up.
    next_ask: Time,
    /// Scratch that a small call has left for the next.
    pub(crate) scratch: Scratch,
}

impl Core {
    pub(crate) fn new(endpoint: Endpoint, clock: Clock, policies: WaitPolicies) -> Core {
        let witness = Witness::new(endpoint.me(), endpoint.peers().clone());
        let members = (0..endpoint.size()).collect();
        let kin = Kin::default();
        Core {
            endpoint,
            active: Vec::new(),
            witness,
            dead: None,
            clock,
            policies,
            kin,
            members,
            beside: None,
            next_answer: Time(0),
            next_ask: Time(0),
            scratch: Scratch::default(),
        }
    }

    /// The same as one of several communicators of this rank, with each rank's number in the world.
    pub(crate) fn among(mut self, kin: Kin, members: Arc<[usize]>) -> Core {
        self.witness.members = members.clone();
        Core { kin, members, ..self }
    }

    /// As [`Core::drive`], but a panic becomes an error that ends the communicator.
    pub(crate) fn drive_safely(&mut self, attention: &Attention, mine: &mut [Active]) -> Result<()> {
        self.safely(|core| {
            let driven = core.drive(attention, mine);
            core.endpoint.coalesce(false);
            driven
        })
    }

    /// Turns a panic into an error that ends the communicator.
    #[inline]
    pub(crate) fn safely(&mut self, work: impl FnOnce(&mut Core) -> Result<()>) -> Result<()> {
        // What a panic leaves half done is not looked at again: the communicator is dead, and the calls are ended.
        let done = std::panic::catch_unwind(AssertUnwindSafe(|| work(self)));
        done.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            let cause = format!("the engine panicked: {}", text.unwrap_or("without a text"));
            let error = Error::new(ErrorKind::Internal, cause).hint("this is a bug in paceline; please report it");
            Err(self.fail(error))
        })
    }

    /// Runs `mine` to their end, and whatever else is under way along with them. Without `mine`, runs until nothing is.
    pub(crate) fn drive(&mut self, attention: &Attention, mine: &mut [Active]) -> Result<()> {
        if let Some(first) = &self.dead {
            return Err(first.repeated());
        }
        let WaitPolicies { caller, progress } = self.policies;
        let mut waiter = Waiter::new(if mine.is_empty() { progress } else { caller });
        loop {
            if attention.is_raised() {
                self.attend(attention)?;
            }
            let moved = self.pass(mine)?;
            let done = if mine.is_empty() { self.active.is_empty() } else { all_done(mine) };
            if done {
                mine.iter().for_each(|active| self.remember(active));
                return Ok(());
            }
            if moved {
                waiter.reset();
                continue;
            }
            match if self.is_beside(mine) { Pause::Sleep } else { waiter.next() } {
                Pause::Spin => std::hint::spin_loop(),
                Pause::Yield => std::thread::yield_now(),
                Pause::Clear => {
                    self.clear_the_way(mine)?;
                }
                Pause::Sleep => self.idle(attention, mine)?,
            }
        }
    }

    /// Whether all whose calls are driven compute meanwhile, as far as is known: then the processor is theirs.
    fn is_beside(&self, mine: &[Active]) -> bool {
        mine.is_empty() && !self.active.iter().any(Active::is_awaited)
    }

    /// What one turn of [`Core::drive`] does, without waiting: for ranks whose clock somebody else moves.
    pub(crate) fn step(&mut self, attention: &Attention) -> Result<RankStep> {
        if attention.is_raised() {
            self.attend(attention)?;
        }
        if let Some(first) = &self.dead {
            return Err(first.repeated());
        }
        if self.pass(&mut [])? {
            return Ok(RankStep::Moved);
        }
        if self.active.is_empty() {
            return Ok(RankStep::Done);
        }
        if self.clear_the_way(&[])? {
            return Ok(RankStep::Moved);
        }
        self.check_left(&[])?;
        if self.news(&[])? {
            return Ok(RankStep::Moved);
        }
        self.check_times(&mut []).map(RankStep::Waiting)
    }

    /// One look at every call; whether anything moved. What has ended is told so.
    pub(crate) fn pass(&mut self, mine: &mut [Active]) -> Result<bool> {
        let mut moved = false;
        for active in mine.iter_mut() {
            moved |= active.operation.progress(&mut self.endpoint).map_err(|fault| self.fault(&fault, active))?;
        }
        let mut place = 0;
        while place < self.active.len() {
            let active = &mut self.active[place];
            match active.operation.progress(&mut self.endpoint) {
                Ok(any) => moved |= any,
                Err(fault) => {
                    let active = self.active.remove(place);
                    let error = self.fault(&fault, &active);
                    active.end(Err(error.clone()));
                    return Err(error);
                }
            }
            if self.active[place].operation.is_done() {
                let active = self.active.remove(place);
                self.remember(&active);
                active.end(Ok(()));
            } else {
                place += 1;
            }
        }
        self.endpoint.ring_peers();
        Ok(moved)
    }

    pub(crate) fn fault(&mut self, found: &Fault, active: &Active) -> Error {
        if matches!(found.cause, FaultCause::Link(_))
            && let Err(known) = self.hear_why(found.peer, REASON_WITHIN, std::slice::from_ref(active))
        {
            return known.during(active.call.clone());
        }
        if matches!(found.cause, FaultCause::History) {
            if let Some(error) = self.earlier_difference(found.peer, active) {
                return self.fail(error);
            }
            self.ask_about_earlier(found.peer);
            if let Err(known) = self.hear_why(found.peer, REASON_WITHIN, std::slice::from_ref(active)) {
                return known;
            }
        }
        let error = fault::explain(&self.witness, found, &active.call, active.operation.stamps.own_towards(found.peer));
        self.fail(error)
    }

    fn remember(&mut self, active: &Active) {
        if self.endpoint.size() > 1 && matches!(active.operation.channels, Channels::Collective { .. }) {
            self.witness.remember(active.call.clone(), active.operation.stamps.own());
        }
    }

    /// Takes in what other threads have asked for.
    pub(crate) fn attend(&mut self, attention: &Attention) -> Result<()> {
        let (submitted, stop) = attention.take();
        self.active.extend(submitted);
        match stop {
            Some(Stop::Fail(error)) => Err(self.fail(error)),
            Some(Stop::Drop) if !self.active.is_empty() => {
                let error = Error::new(ErrorKind::Aborted, "the communicator was dropped while calls were under way");
                self.take_leave();
                self.end_all(&error);
                Err(error)
            }
            Some(Stop::Drop) | None => Ok(()),
        }
    }

    /// Ends every call under way, on this rank only.
    pub(crate) fn end_all(&mut self, error: &Error) {
        self.dead.get_or_insert_with(|| error.clone());
        self.endpoint.forget_loans();
        for active in std::mem::take(&mut self.active) {
            let call = active.call.clone();
            active.end(Err(error.clone().during(call)));
        }
    }

    /// Leaves in order and gives the links back, if nothing is under way, nothing has failed, and another group may use them.
    pub(crate) fn retire(&mut self) -> Option<Endpoint> {
        if !self.is_idle() || self.kin.failure(&self.members).is_some() {
            return None;
        }
        let links = self.endpoint.retire()?;
        self.dead = Some(Error::new(ErrorKind::Aborted, "the communicator was dropped"));
        Some(links)
    }

    /// Tells the peers why this rank leaves, if another of its communicators has failed. Of this one's own failure they
    /// know.
    pub(crate) fn take_leave(&mut self) {
        if self.dead.is_none() {
            self.kin.take_leave(&self.members, &mut self.endpoint);
        }
    }

    /// Ends the communicator on this rank: every call under way fails, and the peers are told why.
    pub(crate) fn fail(&mut self, error: Error) -> Error {
        if let Some(first) = &self.dead {
            return first.clone();
        }
        // What another rank has found is passed on as well: a peer must not learn that this rank leaves before it knows why.
        let mut report = error.report().clone();
        report.reporter.get_or_insert(self.endpoint.me());
        self.kin.note(&report, &self.members);
        let notice = Notice::Fault(report).encode();
        for peer in self.others() {
            self.endpoint.notify(peer, &notice);
        }
        self.end_all(&error);
        error
    }

    /// What a rank does when it has waited for some time: news, deadlines, then sleep.
    fn idle(&mut self, attention: &Attention, mine: &mut [Active]) -> Result<()> {
        if self.clear_the_way(mine)? {
            return Ok(());
        }
        self.check_left(mine)?;
        self.ask(mine)?;
        let next = self.check_times(mine)?.min(self.answer_for_kin(mine));
        self.endpoint.coalesce(self.is_beside(mine));
        self.endpoint.about_to_sleep();
        let slept = self.sleep_unless_moving(attention, mine, next);
        self.endpoint.awake();
        slept?;
        self.news(mine).map(|_| ())
    }

    /// Asks whether the caller who waits gives up; not at every sleep, since the answer may take its time.
    fn ask(&mut self, mine: &[Active]) -> Result<()> {
        let now = self.clock.now();
        if mine.is_empty() || now < self.next_ask || !self.kin.has_asks() {
            return Ok(());
        }
        self.next_ask = now.after(ASKS_EVERY);
        match mine.first().and_then(|active| self.kin.gives_up().map(|error| error.during(active.call.clone()))) {
            Some(error) => Err(self.fail(error)),
            None => Ok(()),
        }
    }

    fn sleep_unless_moving(&mut self, attention: &Attention, mine: &mut [Active], until: Time) -> Result<()> {
        if attention.is_raised() || self.pass(mine)? {
            return Ok(());
        }
        let asks = !mine.is_empty() && self.kin.has_asks();
        let until = if asks { until.min(self.next_ask) } else { until };
        let longest = until.since(self.clock.now()).min(Duration::from_secs(1));
        self.endpoint.sleep(longest).map_err(|error| {
            let error = Error::new(ErrorKind::System, format!("waiting for events failed: {error}"));
            self.fail(error)
        })
    }

    pub(crate) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let me = self.endpoint.me();
        (0..self.endpoint.size()).filter(move |peer| *peer != me)
    }
}

#[inline]
fn all_done(calls: &[Active]) -> bool {
    calls.iter().all(|active| active.operation.is_done())
}
