//! A call under way, with what is needed to report on it and to end it.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use paceline_transport::Time;

use super::channels::Channels;
use super::completion::Completion;
use super::notice::Said;
use super::operation::Operation;
use crate::error::{CallName, Result};

/// A call under way, with what is needed to report on it.
pub(crate) struct Active {
    /// Boxed, because it is large and an `Active` changes hands.
    pub(crate) operation: Box<Operation>,
    pub(crate) call: CallName,
    pub(crate) timeout: Duration,
    /// Told how it ended; a call that its own thread drives has none.
    pub(crate) completion: Option<Arc<Completion>>,
    /// What must live as long as the operation does: the buffers of a started call.
    keep: Option<Arc<dyn Any + Send + Sync>>,
    pub(crate) clocked: Option<Clocked>,
}

/// The times of a call that has had to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocked {
    pub(crate) started: Time,
    pub(crate) deadline: Time,
    /// When to ask the peers what they are doing: first those that are waited for, whether they are in the same call, later
    /// everyone, to find the culprit.
    queries: [Time; 2],
    /// How many times they have been asked.
    asked: usize,
}

/// Whom to ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Query {
    /// The ranks that the call waits for.
    Awaited,
    /// All ranks.
    Everyone,
}

/// How soon ranks that wait make sure that they are in the same call.
const COMPARE_AFTER: Duration = Duration::from_millis(200);

impl Active {
    pub(crate) fn new(
        operation: Box<Operation>,
        call: CallName,
        timeout: Duration,
        keep: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Active {
        Active { operation, call, timeout, completion: None, keep, clocked: None }
    }

    /// Whether somebody waits for its completion.
    pub(crate) fn is_awaited(&self) -> bool {
        self.completion.as_ref().is_some_and(|completion| completion.is_awaited())
    }

    /// Tells whoever waits how it ended.
    pub(crate) fn end(self, result: Result<()>) {
        // The buffers go back to their owner only after the operation, which holds their addresses, is gone.
        let Active { operation, completion, keep, .. } = self;
        drop(operation);
        drop(keep);
        if let Some(completion) = completion {
            completion.end(result);
        }
    }
}

impl Clocked {
    pub(crate) fn new(now: Time, timeout: Duration) -> Clocked {
        let deadline = now.after(timeout);
        let notice = (timeout / 5).min(Duration::from_millis(500));
        let last = if deadline == Time::NEVER { Time::NEVER } else { now.after(timeout - notice) };
        let first = now.after(COMPARE_AFTER.min(timeout / 4));
        Clocked { started: now, deadline, queries: [first, last], asked: 0 }
    }

    /// Whom to ask now, if anyone.
    pub(crate) fn query(&mut self, now: Time) -> Option<Query> {
        let due = self.queries.iter().filter(|query| **query <= now).count();
        let asks = (self.asked < due).then(|| [Query::Awaited, Query::Everyone][due - 1]);
        self.asked = self.asked.max(due);
        asks
    }

    /// The next moment at which something has to be done.
    pub(crate) fn next(&self) -> Time {
        self.queries.get(self.asked).copied().unwrap_or(self.deadline)
    }
}

impl Active {
    /// Its number, if it is a collective.
    pub(crate) fn collective(&self) -> Option<u64> {
        match self.operation.channels {
            Channels::Collective { sequence } => Some(sequence),
            Channels::Messages { .. } => None,
        }
    }

    /// What it is, as this rank believes, if it is a collective.
    pub(crate) fn said(&self) -> Option<Said> {
        let sequence = self.collective()?;
        Some(Said { sequence, stamp: self.operation.stamps.own().0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_asked_twice() {
        let at = |millis: u64| Time(0).after(Duration::from_millis(millis));
        let mut clocked = Clocked::new(Time(0), Duration::from_secs(10));
        assert_eq!((clocked.query(at(199)), clocked.next()), (None, at(200)));
        assert_eq!((clocked.query(at(200)), clocked.next()), (Some(Query::Awaited), at(9_500)));
        assert_eq!((clocked.query(at(9_499)), clocked.next()), (None, at(9_500)));
        assert_eq!((clocked.query(at(9_600)), clocked.next()), (Some(Query::Everyone), at(10_000)));
        assert_eq!((clocked.query(at(9_999)), clocked.next()), (None, at(10_000)));
        let mut stopped = Clocked::new(Time(0), Duration::from_millis(100));
        assert_eq!((stopped.query(at(99)), stopped.next()), (Some(Query::Everyone), at(100)));
        let endless = Clocked::new(Time(0), Duration::MAX);
        assert_eq!((endless.deadline, endless.next()), (Time::NEVER, at(200)));
    }
}
