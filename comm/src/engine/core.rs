//! The engine: runs every call of one rank to its end, or to an error that says why not.
//!
//! Whoever holds the core drives all calls under way, their own and others'. The loop looks at every call, wakes the
//! peers that have something to see, and when nothing moved spins, yields and at last sleeps (`wait`). Everything that
//! costs (the clock, news of peers, deadlines) is looked at only when nothing moves.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use paceline_transport::sim::RankStep;
use paceline_transport::{Clock, ControlEvent, Endpoint, LinkError, LinkKind, Time};

use super::fault;
use super::notice::{Notice, Status};
use super::operation::{Channels, Fault, Operation};
use super::shared::{Attention, Completion, Stop};
use super::stamp::Fingerprint;
use super::wait::{Pause, WaitPolicy, Waiter};
use crate::error::{CallName, Error, ErrorKind, Result};

/// How many ended collectives are remembered, to explain a late frame.
const REMEMBERED: usize = 16;

/// A call under way, with what is needed to report on it.
pub(crate) struct Active {
    pub(crate) operation: Operation,
    pub(crate) call: CallName,
    pub(crate) timeout: Duration,
    /// Told how it ended; a call that its own thread drives has none.
    pub(crate) completion: Option<Arc<Completion>>,
    /// What must live as long as the operation does: the buffers of a started call.
    keep: Option<Arc<dyn Any + Send + Sync>>,
    clocked: Option<Clocked>,
}

/// The times of a call that has had to wait.
#[derive(Clone, Copy, Debug)]
struct Clocked {
    started: Time,
    deadline: Time,
    query: Time,
    queried: bool,
}

impl Active {
    pub(crate) fn new(
        operation: Operation,
        call: CallName,
        timeout: Duration,
        keep: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Active {
        Active { operation, call, timeout, completion: None, keep, clocked: None }
    }

    fn end(self, result: Result<()>) {
        // The buffers go back to their owner only after the operation, which holds their addresses, is gone.
        let Active { operation, completion, keep, .. } = self;
        drop(operation);
        drop(keep);
        if let Some(completion) = completion {
            completion.end(result);
        }
    }
}

/// What is known of a peer beside its data.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerState {
    pub(crate) left: bool,
    /// Its answer to the query of the call whose deadline is near.
    pub(crate) status: Option<Status>,
}

/// A collective that has ended here.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) call: CallName,
    pub(crate) fingerprint: Option<Fingerprint>,
}

/// One rank's engine.
pub(crate) struct Core {
    pub(crate) endpoint: Endpoint,
    pub(crate) active: Vec<Active>,
    pub(crate) peers: Vec<PeerState>,
    pub(crate) ended: VecDeque<Ended>,
    /// Why nothing works any more.
    pub(crate) dead: Option<Error>,
    pub(crate) clock: Clock,
    policy: WaitPolicy,
}

impl Core {
    pub(crate) fn new(endpoint: Endpoint, clock: Clock, policy: WaitPolicy) -> Core {
        let peers = vec![PeerState::default(); endpoint.size()];
        Core {
            endpoint,
            active: Vec::new(),
            peers,
            ended: VecDeque::with_capacity(REMEMBERED),
            dead: None,
            clock,
            policy,
        }
    }

    /// Runs `mine` to their end, and whatever else is under way along with them. Without `mine`, runs until nothing is.
    pub(crate) fn drive(&mut self, attention: &Attention, mine: &mut [Active]) -> Result<()> {
        if let Some(first) = &self.dead {
            return Err(first.repeated());
        }
        let mut waiter = Waiter::new(self.policy);
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
            match waiter.next() {
                Pause::Spin => std::hint::spin_loop(),
                Pause::Yield => std::thread::yield_now(),
                Pause::FirstYield => {
                    if !self.clear_the_way(mine)? {
                        std::thread::yield_now();
                    }
                }
                Pause::Sleep => self.idle(attention, mine)?,
            }
        }
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

    fn fault(&mut self, found: &Fault, active: &Active) -> Error {
        let error = fault::explain(self, found, &active.call, active.operation.stamps.own());
        self.fail(error)
    }

    fn remember(&mut self, active: &Active) {
        if self.endpoint.size() > 1 && matches!(active.operation.channels, Channels::Collective { .. }) {
            if self.ended.len() == REMEMBERED {
                self.ended.pop_front();
            }
            let fingerprint = Fingerprint::unpack(active.operation.stamps.own());
            self.ended.push_back(Ended { call: active.call.clone(), fingerprint });
        }
    }

    /// Takes in what other threads have asked for.
    pub(crate) fn attend(&mut self, attention: &Attention) -> Result<()> {
        let (submitted, stop) = attention.take();
        self.active.extend(submitted);
        match stop {
            Some(Stop::Abort(reason)) => Err(self.fail(Error::new(ErrorKind::Aborted, reason))),
            Some(Stop::Drop) if !self.active.is_empty() => {
                let error = Error::new(ErrorKind::Aborted, "the communicator was dropped while calls were under way");
                self.end_all(&error);
                Err(error)
            }
            Some(Stop::Drop) | None => Ok(()),
        }
    }

    /// Ends every call under way, on this rank only.
    pub(crate) fn end_all(&mut self, error: &Error) {
        self.dead.get_or_insert_with(|| error.clone());
        for active in std::mem::take(&mut self.active) {
            let call = active.call.clone();
            active.end(Err(error.clone().during(call)));
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
        let notice = Notice::Fault(report).encode();
        for peer in self.others() {
            self.endpoint.notify(peer, &notice);
        }
        self.end_all(&error);
        error
    }

    /// Moves frames aside that a waiting call is stuck behind; whether any were. A frame of a collective that has ended
    /// here without it shows that the ranks disagreed.
    fn clear_the_way(&mut self, mine: &[Active]) -> Result<bool> {
        let mut waits: Vec<_> = Vec::new();
        for active in self.active.iter().chain(mine.iter()) {
            waits.extend(active.operation.waiting().filter(|wait| wait.receives).map(|wait| (wait.peer, wait.channel)));
        }
        let oldest = self.active.iter().chain(mine.iter()).filter_map(Active::collective).min();
        let mut any = false;
        for (peer, channel) in waits {
            let moved = self.endpoint.set_aside(peer, channel);
            match moved {
                Ok(None) => {}
                Ok(Some((foreign, stamp))) => {
                    any = true;
                    let sequence = Channels::collective_of(foreign);
                    if let Some(sequence) = sequence.filter(|s| oldest.is_some_and(|oldest| *s < oldest)) {
                        let error = fault::late_frame(self, peer, sequence, stamp);
                        return Err(self.fail(error));
                    }
                }
                Err(LinkError::Closed) => {}
                Err(error) => {
                    let error = fault::link_failed(self, peer, &error);
                    return Err(self.fail(error));
                }
            }
        }
        Ok(any)
    }

    /// What a rank does when it has waited for some time: news, deadlines, then sleep.
    fn idle(&mut self, attention: &Attention, mine: &mut [Active]) -> Result<()> {
        if self.clear_the_way(mine)? {
            return Ok(());
        }
        self.check_left(mine)?;
        let next = self.check_times(mine)?;
        self.endpoint.about_to_sleep();
        let slept = self.sleep_unless_moving(attention, mine, next);
        self.endpoint.awake();
        slept?;
        self.news(mine).map(|_| ())
    }

    fn sleep_unless_moving(&mut self, attention: &Attention, mine: &mut [Active], until: Time) -> Result<()> {
        if attention.is_raised() || self.pass(mine)? {
            return Ok(());
        }
        let longest = until.since(self.clock.now()).min(Duration::from_secs(1));
        self.endpoint.sleep(longest).map_err(|error| {
            let error = Error::new(ErrorKind::System, format!("waiting for events failed: {error}"));
            self.fail(error)
        })
    }

    /// Reads what peers have told on their control paths, and acts on it; whether there was anything. That a peer has left
    /// is only noted: what it sent before must be looked for first.
    pub(crate) fn news(&mut self, mine: &[Active]) -> Result<bool> {
        let mut any = false;
        while let Some((peer, event)) = self.endpoint.control_event() {
            any = true;
            match event {
                ControlEvent::Left => self.peers[peer].left = true,
                ControlEvent::Died(how) => {
                    let error = fault::died(self, peer, &how);
                    return Err(self.fail(error));
                }
                ControlEvent::Notice(bytes) => match Notice::decode(&bytes) {
                    Some(Notice::Fault(report)) => return Err(self.fail(Error::from_report(report))),
                    Some(Notice::Query) => {
                        let status = Notice::Status(self.status(mine)).encode();
                        self.endpoint.notify(peer, &status);
                    }
                    Some(Notice::Status(status)) => self.peers[peer].status = Some(status),
                    None => tracing::warn!("rank {peer} sent a notice that can't be read"),
                },
            }
        }
        Ok(any)
    }

    fn status(&self, mine: &[Active]) -> Status {
        let oldest = mine.iter().find(|active| !active.operation.is_done()).or(self.active.first());
        let mut waits_for: Vec<_> = oldest.into_iter().flat_map(|a| a.operation.waiting().map(|w| w.peer)).collect();
        waits_for.sort_unstable();
        waits_for.dedup();
        Status {
            current: oldest.map(|active| active.call.clone()),
            ended: self.ended.back().map_or(0, |ended| ended.call.sequence),
            waits_for,
        }
    }

    /// A call that waits for a rank that has left, and for which nothing more will arrive, will never end. To be called
    /// when nothing moved since the news that it left was read.
    fn check_left(&mut self, mine: &[Active]) -> Result<()> {
        if !self.peers.iter().any(|peer| peer.left) {
            return Ok(());
        }
        let mut lost = None;
        for active in self.active.iter().chain(mine.iter()) {
            let wait = active.operation.waiting().find(|wait| self.peers[wait.peer].left);
            lost = wait.map(|wait| (wait, active.call.clone()));
            if lost.is_some() {
                break;
            }
        }
        let Some((wait, call)) = lost else { return Ok(()) };
        let head = if wait.receives { self.endpoint.head(wait.peer, wait.channel) } else { Ok(None) };
        // Over TCP the goodbye comes by a connection of its own and may overtake data, whose end the link itself reports.
        let more_may_come = match head {
            Ok(Some(_)) => true,
            Ok(None) => wait.receives && self.endpoint.link_kind(wait.peer) == Some(LinkKind::Tcp),
            Err(_) => false,
        };
        if more_may_come {
            return Ok(());
        }
        let error = fault::left(self, &wait, call);
        Err(self.fail(error))
    }

    /// Looks at the deadlines; the next moment at which one needs looking at.
    pub(crate) fn check_times(&mut self, mine: &mut [Active]) -> Result<Time> {
        let now = self.clock.now();
        let mut next = Time::NEVER;
        let mut query = false;
        let mut late = None;
        for active in self.active.iter_mut().chain(mine.iter_mut()) {
            let clocked = active.clocked.get_or_insert_with(|| Clocked::new(now, active.timeout));
            if clocked.deadline <= now {
                late = Some((active.call.clone(), now.since(clocked.started)));
                break;
            }
            if clocked.query <= now && !clocked.queried {
                clocked.queried = true;
                query = true;
            }
            next = next.min(if clocked.queried { clocked.deadline } else { clocked.query });
        }
        if let Some((call, waited)) = late {
            // A rank that was stopped past its deadline has been told what the others found.
            self.news(mine)?;
            let active = self.active.iter().chain(mine.iter()).find(|active| active.call == call);
            let waits: Vec<_> = active.into_iter().flat_map(|active| active.operation.waiting()).collect();
            let error = fault::timed_out(self, &call, &waits, waited);
            return Err(self.fail(error));
        }
        if query {
            self.query();
        }
        Ok(next)
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let me = self.endpoint.me();
        (0..self.endpoint.size()).filter(move |peer| *peer != me)
    }

    /// Asks every peer what it is doing.
    fn query(&mut self) {
        let query = Notice::Query.encode();
        for peer in self.others() {
            self.peers[peer].status = None;
            self.endpoint.notify(peer, &query);
        }
    }
}

#[inline]
fn all_done(calls: &[Active]) -> bool {
    calls.iter().all(|active| active.operation.is_done())
}

impl Clocked {
    fn new(now: Time, timeout: Duration) -> Clocked {
        let deadline = now.after(timeout);
        let notice = (timeout / 5).min(Duration::from_millis(500));
        let query = if deadline == Time::NEVER { Time::NEVER } else { now.after(timeout - notice) };
        Clocked { started: now, deadline, query, queried: false }
    }
}

impl Active {
    fn collective(&self) -> Option<u64> {
        match self.operation.channels {
            Channels::Collective { sequence } => Some(sequence),
            Channels::Messages { .. } => None,
        }
    }
}
