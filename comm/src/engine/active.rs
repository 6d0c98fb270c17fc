//! A call under way, with what is needed to report on it and to end it.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use paceline_transport::Time;

use super::operation::{Channels, Operation};
use super::shared::Completion;
use crate::error::{CallName, Result};

/// A call under way, with what is needed to report on it.
pub(crate) struct Active {
    pub(crate) operation: Operation,
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
    /// When to ask the peers what they are doing.
    pub(crate) query: Time,
    pub(crate) queried: bool,
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
        let query = if deadline == Time::NEVER { Time::NEVER } else { now.after(timeout - notice) };
        Clocked { started: now, deadline, query, queried: false }
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
}
