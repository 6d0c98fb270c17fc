//! What can be wrong with a table, and where.

use thiserror::Error;

use crate::pipeline::action::Action;

/// What is wrong, and where.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("rank {rank}, position {position}, {action}: {fault}")]
pub struct CheckError {
    /// The rank.
    pub rank: u32,
    /// The position in its list, from 0; the list's length if what is wrong is that something is missing at the end.
    pub position: usize,
    /// What stands there, or what is missing, in the table's notation.
    pub action: String,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Fault {
    /// There are no ranks, stages or micro-batches.
    #[error("a schedule needs a rank, a stage and a micro-batch")]
    Empty,
    /// There is no such stage.
    #[error("there are only {0} stages")]
    NoSuchStage(u32),
    /// There is no such micro-batch.
    #[error("there are only {0} micro-batches")]
    NoSuchMicroBatch(u32),
    /// Another rank has that stage.
    #[error("the placement gives this to rank {0}")]
    WrongRank(u32),
    /// Done before.
    #[error("done before, at position {0}")]
    Twice(usize),
    /// A pair that is not a forward and a backward.
    #[error("a pair is a forward and a backward")]
    NotAPair,
    /// It needs another action, which is nowhere.
    #[error("{0} is missing")]
    Missing(Action),
    /// A whole backward beside a half.
    #[error("{0} at position {1} is there, too: a backward is whole (B) or in halves (I and W)")]
    TwoBackwards(Action, usize),
    /// It needs another action of the rank, which comes later or at the same time.
    #[error("must come after {0}, which is at position {1}")]
    Early(Action, usize),
    /// It waits for ever for a computation of another rank.
    #[error("waits for ever for {needs}, position {position} of rank {rank}, which stands at position {stands}")]
    Deadlock {
        /// What it waits for.
        needs: Action,
        /// Who has it.
        rank: u32,
        /// Where.
        position: usize,
        /// Where that rank waits itself.
        stands: usize,
    },
    /// The lowered table doesn't compute what the schedule says.
    #[error("the schedule has {0} here")]
    Changed(String),
    /// A transfer that nobody needs, or not there.
    #[error("no transfer of the schedule")]
    Stray,
    /// A computation needs what its rank doesn't receive.
    #[error("needs {0}, which is not received")]
    NotReceived(String),
    /// A computation makes what another rank needs, and its rank doesn't send it.
    #[error("makes {0}, which is not sent")]
    NotSent(String),
    /// It must come after another position of the rank.
    #[error("must come after position {0} ({1})")]
    Before(usize, String),
    /// It waits for ever for the other end of a transfer.
    #[error("waits for ever for rank {rank}, which stands at position {stands} ({at})")]
    DeadlockTransfer {
        /// The other end.
        rank: u32,
        /// Where it stands.
        stands: usize,
        /// What it waits at, or `the end`.
        at: String,
    },
}
