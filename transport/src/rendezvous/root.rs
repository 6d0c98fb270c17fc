//! The root: takes everyone's bytes, tells everyone the outcome.
//!
//! One thread serves all connections and never blocks on one, so a stranger that connects and says nothing costs a
//! slot and a few seconds of patience, not the job's time. Once the outcome is known, good or bad, nothing more is
//! gathered; the loop goes on until every rank that is there has been told, or until time is up.

mod guest;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use self::guest::{Event, Guest, Stage};
use super::listen::Listener;
use super::messages::{Introduction, encode_answer};
use crate::machine;

use super::{Credentials, Exchanged, Period, RankIdentity, RendezvousError, Setup, socket, sys};

/// How long a connection may take for its handshake.
const GREETING: Duration = Duration::from_secs(5);
/// How many connections may be at their handshake; beyond, the oldest is dropped.
const MOST_GREETING: usize = 256;
/// How long one may take before it is dropped where files are short.
const LINGERING: Duration = Duration::from_secs(1);
/// How long after a failure ranks that are just arriving are still told of it.
const FAREWELL: Duration = Duration::from_millis(500);
/// How many strangers are logged one by one.
const MOST_LOGGED: usize = 16;

struct Root<'a> {
    setup: &'a Setup,
    period: Period,
    credentials: Credentials,
    me: RankIdentity,
    listener: Option<Listener>,
    guests: Vec<Guest>,
    arrived: Vec<Option<(RankIdentity, Vec<u8>)>>,
    /// When the outcome must be known, and whose limit that is.
    due: Instant,
    limit: (usize, Duration),
    outcome: Option<Outcome>,
    strangers: usize,
}

struct Outcome {
    result: Result<Exchanged, RendezvousError>,
    bytes: Arc<[u8]>,
    until: Instant,
    told: usize,
}

/// Gathers at `listener` until all have come or can't any more. `name` stands for the job.
pub(super) fn serve(
    setup: &Setup,
    mine: &[u8],
    listener: Listener,
    name: [u8; 16],
    period: Period,
) -> Result<Exchanged, RendezvousError> {
    let me =
        RankIdentity { rank: setup.rank, host: sys::host(), pid: std::process::id(), address: listener.place.clone() };
    let mut arrived = vec![None; setup.size];
    arrived[setup.rank] = Some((me.clone(), mine.to_vec()));
    tracing::debug!("rendezvous: rank {} of {} listens at {}", setup.rank, setup.size, listener.place);
    let mut root = Root {
        setup,
        period,
        credentials: Credentials { job: name, token: setup.token.clone() },
        me,
        listener: Some(listener),
        guests: Vec::new(),
        arrived,
        due: period.verdict_due(),
        limit: (setup.rank, period.total()),
        outcome: None,
        strangers: 0,
    };
    if let Some(problem) = machine::files_missing(setup.size - 1) {
        let doing = format!("rank {} preparing for connections of {} ranks", setup.rank, setup.size - 1);
        root.conclude(Err(RendezvousError::System { doing, problem }));
    }
    root.run()
}

impl Root<'_> {
    fn run(&mut self) -> Result<Exchanged, RendezvousError> {
        loop {
            if self.outcome.is_none() && self.due <= Instant::now() {
                self.conclude(Err(self.incomplete()));
            }
            self.tell();
            if self.is_over() {
                break;
            }
            let ready = self.poll()?;
            if ready[0] {
                self.admit();
            }
            self.serve_guests(&ready[1..]);
            self.expire();
        }
        if MOST_LOGGED < self.strangers {
            tracing::warn!("rendezvous: dropped {} strangers in all", self.strangers);
        }
        self.outcome.take().expect("only an outcome ends the loop").result
    }

    fn is_over(&self) -> bool {
        let Some(outcome) = &self.outcome else { return false };
        let quiet = self.guests.iter().all(|guest| !guest.has_more_to_send());
        let all_told = outcome.result.is_ok() || self.setup.size - 1 <= outcome.told;
        (quiet && all_told) || outcome.until <= Instant::now()
    }

    /// Waits for something to do: whether the listener is ready, then each guest.
    fn poll(&self) -> Result<Vec<bool>, RendezvousError> {
        let greetings = self.guests.iter().filter(|guest| !guest.is_settled()).map(|guest| guest.since + GREETING);
        let end = self.outcome.as_ref().map_or(self.due, |outcome| outcome.until);
        let until = greetings.min().map_or(end, |first| first.min(end));
        let mut polled = Vec::with_capacity(1 + self.guests.len());
        for guest in &self.guests {
            let flags = if guest.has_more_to_send() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            polled.push(PollFd::from_borrowed_fd(guest.socket.as_fd(), flags));
        }
        if let Some(listener) = &self.listener {
            polled.push(PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN));
        }
        socket::poll_until(&mut polled, until).map_err(|error| RendezvousError::System {
            doing: format!("rank {} waiting for connections", self.setup.rank),
            problem: error.to_string(),
        })?;
        let mut ready: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        match self.listener {
            Some(_) => ready.rotate_right(1),
            None => ready.insert(0, false),
        }
        Ok(ready)
    }

    fn admit(&mut self) {
        while let Some(listener) = &self.listener {
            match listener.accept() {
                Ok(Some((socket, address))) => self.greet(socket, address),
                Ok(None) => return,
                Err(Errno::MFILE | Errno::NFILE) if self.outcome.is_some() || self.drop_lingerer() => return,
                Err(error) => {
                    let error = std::io::Error::from(error);
                    let problem = format!("{error}{}", machine::files_hint(&error));
                    let doing =
                        format!("rank {} accepting a connection, with {} ranks there", self.setup.rank, self.count());
                    self.conclude(Err(RendezvousError::System { doing, problem }));
                    self.listener = None;
                }
            }
        }
    }

    fn greet(&mut self, socket: OwnedFd, address: String) {
        if MOST_GREETING <= self.guests.iter().filter(|guest| !guest.is_settled()).count() {
            self.drop_oldest_greeting();
        }
        self.guests.push(Guest::new(socket, address, self.credentials.clone()));
    }

    /// Drops the oldest connection at its handshake, if it has been there for a while.
    fn drop_lingerer(&mut self) -> bool {
        let oldest = self.guests.iter().find(|guest| !guest.is_settled());
        oldest.is_some_and(|guest| LINGERING < guest.since.elapsed()) && self.drop_oldest_greeting()
    }

    fn drop_oldest_greeting(&mut self) -> bool {
        let Some(oldest) = self.guests.iter().position(|guest| !guest.is_settled()) else { return false };
        let guest = self.guests.remove(oldest);
        self.note_stranger(&guest.address, "dropped to make room for newer connections");
        true
    }

    fn note_stranger(&mut self, address: &str, why: &str) {
        self.strangers += 1;
        if self.strangers <= MOST_LOGGED {
            tracing::warn!("rendezvous at {}: dropped a connection from {address}: {why}", self.me.address);
        }
    }

    fn serve_guests(&mut self, ready: &[bool]) {
        let mut staying = Vec::with_capacity(self.guests.len());
        // Guests that `admit` added were not polled; they are served in the next turn.
        let polled = std::mem::take(&mut self.guests).into_iter();
        for (guest, ready) in polled.zip(ready.iter().copied().chain(std::iter::repeat(false))) {
            let stays = if ready { self.serve_guest(guest) } else { Some(guest) };
            staying.extend(stays);
        }
        self.guests = staying;
    }

    /// Does what there is to do for a guest, and gives it back unless that was the last.
    fn serve_guest(&mut self, mut guest: Guest) -> Option<Guest> {
        match guest.progress() {
            Event::Nothing => {}
            Event::Stranger(why) => {
                self.note_stranger(&guest.address, &why);
                return None;
            }
            Event::Came(introduction, entry) => self.receive(&mut guest, introduction, entry),
            Event::Gone(problem) => {
                self.lose(&guest, problem);
                return None;
            }
        }
        Some(guest)
    }

    fn receive(&mut self, guest: &mut Guest, introduction: Introduction, entry: Vec<u8>) {
        let Introduction { rank, size, pid, host, left, limit } = introduction;
        let who = RankIdentity { rank, host, pid, address: guest.address.clone() };
        guest.stage = Stage::Arrived(who.clone());
        if self.outcome.is_some() {
            return;
        }
        if size != self.setup.size || size <= rank {
            let (root, root_size) = (Box::new(self.me.clone()), self.setup.size);
            let mismatch = RendezvousError::SizeMismatch { root, root_size, other: Box::new(who), other_size: size };
            return self.conclude(Err(mismatch));
        }
        if let Some((first, _)) = &self.arrived[rank] {
            let duplicate = RendezvousError::Duplicate { first: Box::new(first.clone()), second: Box::new(who) };
            return self.conclude(Err(duplicate));
        }
        tracing::debug!("rendezvous: rank {who} arrived, {} of {size}", self.count() + 1);
        let due = Instant::now() + left.min(self.period.total());
        if due < self.due {
            (self.due, self.limit) = (due, (rank, limit));
        }
        self.arrived[rank] = Some((who, entry));
        if self.arrived.iter().all(Option::is_some) {
            let entries = self.arrived.iter_mut().flatten().map(|(_, entry)| std::mem::take(entry)).collect();
            // Closed before anyone is told, so that a rank that is quick to meet again doesn't meet this root.
            self.listener = None;
            self.conclude(Ok(Exchanged { job: sys::random(), entries }));
        }
    }

    fn lose(&mut self, guest: &Guest, problem: String) {
        let Stage::Arrived(lost) = &guest.stage else { return };
        let unsent = self.outcome.as_ref().is_some_and(|outcome| outcome.result.is_ok() && guest.has_more_to_send());
        if self.outcome.is_none() || unsent {
            let (lost, arrived, size) = (Box::new(lost.clone()), self.count(), self.setup.size);
            let error = RendezvousError::LostRank { lost, arrived, size, problem };
            match &mut self.outcome {
                None => self.conclude(Err(error)),
                // The others have their answer already and will miss the rank when they turn to it.
                Some(outcome) => outcome.result = Err(error),
            }
        }
    }

    fn count(&self) -> usize {
        self.arrived.iter().flatten().count()
    }

    fn incomplete(&self) -> RendezvousError {
        let missing = (0..self.setup.size).filter(|rank| self.arrived[*rank].is_none()).collect();
        let arrived = self.arrived.iter().flatten().map(|(who, _)| who.clone()).collect();
        let (limited_by, limit) = self.limit;
        RendezvousError::Incomplete { size: self.setup.size, limit, limited_by, arrived, missing }
    }

    fn conclude(&mut self, result: Result<Exchanged, RendezvousError>) {
        let answer = encode_answer(&result, &self.me);
        let bytes = [&(answer.len() as u64).to_le_bytes(), &answer[..]].concat().into();
        let until = match &result {
            Ok(_) => self.period.deadline,
            Err(_) => (Instant::now() + FAREWELL).min(self.period.deadline),
        };
        self.outcome = Some(Outcome { result, bytes, until, told: 0 });
    }

    /// Gives the outcome, once there is one, to the guests that don't have it yet.
    fn tell(&mut self) {
        let Some(outcome) = &mut self.outcome else { return };
        for guest in &mut self.guests {
            if guest.send_answer(&outcome.bytes) {
                outcome.told += 1;
            }
        }
        self.guests.retain(|guest| !guest.is_answered() || guest.has_more_to_send());
    }

    fn expire(&mut self) {
        let now = Instant::now();
        let (late, staying) = std::mem::take(&mut self.guests)
            .into_iter()
            .partition::<Vec<_>, _>(|guest| !guest.is_settled() && guest.since + GREETING <= now);
        self.guests = staying;
        for guest in late {
            self.note_stranger(&guest.address, "it didn't finish the handshake in time");
        }
    }
}
