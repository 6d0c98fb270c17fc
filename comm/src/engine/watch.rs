//! What a rank looks at when nothing moves: frames in the way, news of its peers, and deadlines.

use std::collections::BTreeSet;
use std::time::Duration;

use paceline_transport::{Clock, ControlEvent, Endpoint, LinkError, LinkKind, Stamp, Time};

use super::active::{Active, Clocked, Query};
use super::blame::behind;
use super::channels::Channels;
use super::core::{Core, REASON_WITHIN};
use super::exchange;
use super::fault;
use super::kin::Doing;
use super::notice::{Notice, Said, Status};
use super::stamp::Fingerprint;
use crate::error::{Error, ErrorKind, Result};

/// How often the reason of a failed link is looked for at least, while it is waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How many of the ranks that a call waits for are asked whether they are in the same call.
const COMPARED_MAX: usize = 16;

/// How often a rank that waits answers for its other communicators.
const ANSWER_EVERY: Duration = Duration::from_millis(50);

/// The ranks that a call waits for.
fn waits_for(active: &Active) -> Vec<usize> {
    active.operation.waiting().map(|wait| wait.peer).collect::<BTreeSet<_>>().into_iter().collect()
}

impl Core {
    /// Moves frames aside that a waiting call is stuck behind; whether any were. A frame of a collective that has ended
    /// here without it shows that the ranks disagreed.
    pub(crate) fn clear_the_way(&mut self, mine: &[Active]) -> Result<bool> {
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
                        let error = fault::late_frame(&self.witness, peer, sequence, stamp);
                        return Err(self.fail(error));
                    }
                }
                Err(LinkError::Closed) => {}
                Err(error) => {
                    self.hear_why(peer, REASON_WITHIN, mine)?;
                    let error = fault::link_failed(&self.witness, peer, &error);
                    return Err(self.fail(error));
                }
            }
        }
        Ok(any)
    }

    /// The call before `active` that a peer took for another, as far as the boards still show it or a frame of it has been
    /// left lying.
    pub(crate) fn earlier_difference(&mut self, peer: usize, active: &Active) -> Option<Error> {
        if let Some(stamps) = exchange::earlier_difference(self.endpoint.board()?, peer) {
            return Some(fault::ended_differently(&self.witness, peer, stamps));
        }
        let channel = active.operation.channels.of(0, true);
        for peer in self.others() {
            while let Ok(Some((foreign, stamp))) = self.endpoint.set_aside(peer, channel) {
                let sequence = Channels::collective_of(foreign).filter(|found| Some(*found) < active.collective());
                if let Some(sequence) = sequence {
                    return Some(fault::late_frame(&self.witness, peer, sequence, stamp));
                }
            }
        }
        None
    }

    /// Has a peer compare the last calls that ended here with its own: it tells everybody of a difference.
    pub(crate) fn ask_about_earlier(&mut self, peer: usize) {
        for ended in &self.witness.ended {
            let stamp = ended.fingerprint().map(|fingerprint| fingerprint.pack().0);
            let said = stamp.map(|stamp| Said { sequence: ended.call.sequence, stamp });
            self.endpoint.notify(peer, &Notice::Query(said).encode());
        }
    }

    /// Listens for the reason why the link to a peer has failed: the peer may have told it, or that it leaves, on its
    /// control path, which is a connection of its own.
    pub(crate) fn hear_why(&mut self, peer: usize, within: Duration, mine: &[Active]) -> Result<()> {
        let deadline = self.clock.now().after(within);
        loop {
            self.news(mine)?;
            let left = deadline.since(self.clock.now());
            // A simulated clock stands still meanwhile.
            if self.witness.peers[peer].left || left.is_zero() || matches!(self.clock, Clock::Virtual(_)) {
                return Ok(());
            }
            self.endpoint.about_to_sleep();
            let news = self.news(mine);
            let slept = if matches!(news, Ok(false)) { self.endpoint.sleep(left.min(LOOK_AGAIN)) } else { Ok(()) };
            self.endpoint.awake();
            if news.map(|_| slept)?.is_err() {
                return Ok(());
            }
        }
    }

    /// As [`Core::news`], where nobody sleeps in the endpoint, which is what finds out that there is any.
    pub(crate) fn look(&mut self) -> Result<()> {
        self.endpoint.about_to_sleep();
        let slept = self.endpoint.sleep(Duration::ZERO);
        self.endpoint.awake();
        slept.map_err(|error| {
            let error = Error::new(ErrorKind::System, format!("looking for events failed: {error}"));
            self.fail(error)
        })?;
        self.news(&[]).map(drop)
    }

    /// Reads what peers have told on their control paths, and acts on it; whether there was anything. That a peer has left
    /// is only noted: what it sent before must be looked for first.
    pub(crate) fn news(&mut self, mine: &[Active]) -> Result<bool> {
        let mut any = false;
        while let Some((peer, event)) = self.endpoint.control_event() {
            any = true;
            match event {
                ControlEvent::Left => self.witness.peers[peer].left = true,
                ControlEvent::Died(how) => {
                    let error = self.in_call(mine, fault::died(&self.witness, peer, &how));
                    return Err(self.fail(error));
                }
                ControlEvent::Failed { peers, how } => {
                    let error = self.in_call(mine, fault::could_not_join(&self.witness, peer, peers, &how));
                    return Err(self.fail(error));
                }
                ControlEvent::Notice(bytes) => match Notice::decode(&bytes) {
                    Some(Notice::Fault(report)) => return Err(self.fail(Error::from_report(report))),
                    Some(Notice::Farewell(report)) => self.witness.peers[peer].farewell = Some(report),
                    Some(Notice::Query(said)) => {
                        if let Some(said) = said {
                            self.compare(peer, said, mine)?;
                        }
                        let mut status = self.status(mine);
                        status.trouble = self.trouble(status.waits_for.iter().copied().chain([peer]));
                        self.endpoint.notify(peer, &Notice::Status(status).encode());
                    }
                    Some(Notice::Status(status)) => self.witness.peers[peer].status = Some(status),
                    None => tracing::warn!("rank {peer} sent a notice that can't be read"),
                },
            }
        }
        Ok(any)
    }

    /// Whether a peer that waits means the same by a collective as this rank, whose part in it may have ended.
    fn compare(&mut self, peer: usize, said: Said, mine: &[Active]) -> Result<()> {
        let same = |active: &&Active| active.collective() == Some(said.sequence);
        let under_way = self.active.iter().chain(mine.iter()).find(same);
        let under_way =
            under_way.map(|active| (active.call.clone(), Fingerprint::unpack(active.operation.stamps.own())));
        let ended = self.witness.ended.iter().find(|ended| ended.call.sequence == said.sequence);
        let known = under_way.or_else(|| ended.map(|ended| (ended.call.clone(), ended.fingerprint())));
        let theirs = Stamp(said.stamp);
        match known {
            Some((call, fingerprint)) if fingerprint != Fingerprint::unpack(theirs) => {
                let error = fault::mismatch(&self.witness, peer, &call, fingerprint, theirs).during(call);
                Err(self.fail(error))
            }
            _ => Ok(()),
        }
    }

    fn oldest<'a>(&'a self, mine: &'a [Active]) -> Option<&'a Active> {
        mine.iter().find(|active| !active.operation.is_done()).or(self.active.first())
    }

    /// What was found while a call was under way, with that call.
    fn in_call(&self, mine: &[Active], error: Error) -> Error {
        match self.oldest(mine) {
            Some(active) => error.during(active.call.clone()),
            None => error,
        }
    }

    fn status(&self, mine: &[Active]) -> Status {
        let ended = self.witness.ended.back().map_or(0, |ended| ended.call.sequence);
        let Some(active) = self.oldest(mine) else {
            return match &self.beside {
                Some(doing) => doing.status(&self.members, ended),
                None => Status { ended, ..Status::default() },
            };
        };
        Status { current: Some(active.call.clone()), ended, waits_for: waits_for(active), ..Status::default() }
    }

    /// What is wrong with the way to one of these ranks, if that is known.
    fn trouble(&self, mut ranks: impl Iterator<Item = usize>) -> Option<String> {
        ranks.find_map(|rank| self.endpoint.trouble(rank))
    }

    /// What this rank does here, for its other communicators.
    fn doing(&self, mine: &[Active]) -> Option<Doing> {
        let active = self.oldest(mine)?;
        let waits_for = waits_for(active).into_iter().map(|rank| self.members[rank]).collect();
        Some(Doing { call: active.call.clone(), waits_for })
    }

    /// Answers for this rank's other communicators, if it is time to; when it is the next time.
    pub(crate) fn answer_for_kin(&mut self, mine: &[Active]) -> Time {
        if matches!(self.clock, Clock::Virtual(_)) {
            return Time::NEVER;
        }
        let now = self.clock.now();
        if now < self.next_answer {
            return self.next_answer;
        }
        let (relatives, doing) = (self.kin.relatives(), self.doing(mine));
        self.next_answer = now.after(ANSWER_EVERY);
        match doing {
            Some(doing) if !relatives.is_empty() => {
                relatives.iter().for_each(|relative| relative.answer(&doing));
                self.next_answer
            }
            _ => Time::NEVER,
        }
    }

    /// Answers those who ask here, when this rank waits in another communicator.
    pub(crate) fn answer_beside(&mut self, doing: &Doing) {
        if self.dead.is_some() || !self.active.is_empty() {
            return;
        }
        self.beside = Some(doing.clone());
        // What is found is this communicator's failure, and its next call will say so.
        let _ = self.look_around().and_then(|()| self.news(&[]));
        self.beside = None;
    }

    /// A call that waits for a rank that has left, and for which nothing more will arrive, will never end. To be called
    /// when nothing moved since the news that it left was read.
    pub(crate) fn check_left(&mut self, mine: &[Active]) -> Result<()> {
        if !self.witness.peers.iter().any(|peer| peer.left) {
            return Ok(());
        }
        let mut lost = None;
        for active in self.active.iter().chain(mine.iter()) {
            let wait = active.operation.waiting().find(|wait| self.witness.peers[wait.peer].left);
            lost = wait.map(|wait| (wait, active.call.clone()));
            if lost.is_some() {
                break;
            }
        }
        let Some((wait, call)) = lost else { return Ok(()) };
        let head = if wait.receives { self.endpoint.head(wait.peer, wait.channel) } else { Ok(None) };
        // Between hosts the goodbye comes by a connection of its own and may overtake data, whose end the link itself reports.
        let more_may_come = match head {
            Ok(Some(_)) => true,
            Ok(None) => wait.receives && self.reports_its_end(wait.peer),
            Err(_) => false,
        };
        if more_may_come {
            return Ok(());
        }
        let error = fault::left(&self.witness, &wait, call);
        Err(self.fail(error))
    }

    fn reports_its_end(&self, peer: usize) -> bool {
        matches!(self.endpoint.link_kind(peer), Some(LinkKind::Tcp | LinkKind::Rdma))
    }

    /// Asks everybody what they are doing, and follows who waits for whom: the ranks that don't answer, of those in
    /// `blamed` and those that keep them waiting.
    pub(crate) fn look_behind(&mut self, blamed: &[usize], within: Duration) -> Result<Vec<usize>> {
        self.query(None, self.others());
        let deadline = self.clock.now().after(within);
        loop {
            let left = deadline.since(self.clock.now());
            if left.is_zero() || self.others().all(|rank| self.witness.peers[rank].status.is_some()) {
                break;
            }
            if self.endpoint.sleep(left.min(LOOK_AGAIN)).is_err() {
                break;
            }
            self.news(&[])?;
        }
        Ok(behind(self.witness.me, blamed, |rank| self.witness.peers[rank].status.as_ref()))
    }

    /// Looks at the deadlines; the next moment at which one needs looking at.
    pub(crate) fn check_times(&mut self, mine: &mut [Active]) -> Result<Time> {
        let now = self.clock.now();
        let mut next = Time::NEVER;
        let (mut queries, mut late) = (Vec::new(), None);
        for active in self.active.iter_mut().chain(mine.iter_mut()) {
            let clocked = active.clocked.get_or_insert_with(|| Clocked::new(now, active.timeout));
            if clocked.deadline <= now {
                late = Some((active.call.clone(), now.since(clocked.started)));
                break;
            }
            let query = clocked.query(now);
            next = next.min(clocked.next());
            if let Some(query) = query {
                let awaited = active.operation.waiting().map(|wait| wait.peer).collect::<BTreeSet<_>>();
                queries.push((query, active.said(), awaited));
            }
        }
        if let Some((call, waited)) = late {
            // A rank that was stopped past its deadline has been told what the others found, but has not looked.
            self.look_around()?;
            self.news(mine)?;
            let active = self.active.iter().chain(mine.iter()).find(|active| active.call == call);
            let waits: Vec<_> = active.into_iter().flat_map(|active| active.operation.waiting()).collect();
            let trouble = self.trouble(waits.iter().map(|wait| wait.peer));
            let error = fault::timed_out(&self.witness, &call, &waits, (waited, trouble));
            return Err(self.fail(error));
        }
        for (query, said, awaited) in queries {
            let me = self.endpoint.me();
            match query {
                Query::Awaited => self.query(said, awaited.into_iter().filter(|peer| *peer != me).take(COMPARED_MAX)),
                Query::Everyone => self.query(said, self.others()),
            }
        }
        Ok(next)
    }

    /// Finds out which control paths have something, without waiting: they are read only when they are known to.
    fn look_around(&mut self) -> Result<()> {
        if matches!(self.clock, Clock::Virtual(_)) {
            return Ok(());
        }
        let looked =
            (0..=self.endpoint.size() / Endpoint::NEWS_AT_ONCE).try_for_each(|_| self.endpoint.sleep(Duration::ZERO));
        looked.map_err(|error| {
            let error = Error::new(ErrorKind::System, format!("looking for events failed: {error}"));
            self.fail(error)
        })
    }

    /// Asks peers what they are doing.
    fn query(&mut self, said: Option<Said>, peers: impl Iterator<Item = usize>) {
        let query = Notice::Query(said).encode();
        for peer in peers {
            self.witness.peers[peer].status = None;
            self.endpoint.notify(peer, &query);
        }
    }
}
