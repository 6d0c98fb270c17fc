//! What goes wrong in parallel training, with the place.

use std::panic::Location;

/// The result of what can fail here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A collective failed; it says which rank is to blame.
    #[error("{doing}: {source}")]
    Communication {
        /// What was being done.
        doing: String,
        /// The communicator's report.
        source: paceline_comm::Error,
    },
    /// candle refused an operation.
    #[cfg(feature = "candle")]
    #[error(transparent)]
    Tensor(#[from] candle_core::Error),
    /// A pipeline's table is no schedule.
    #[error(transparent)]
    Schedule(#[from] crate::pipeline::check::CheckError),
    /// A pipeline schedule doesn't fit the ranks or micro-batches.
    #[error(transparent)]
    Misfit(#[from] crate::pipeline::Misfit),
    /// Layers can't be divided among stages as asked.
    #[error(transparent)]
    Partition(#[from] crate::pipeline::partition::PartitionError),
    /// Something was asked for that can't be: a layout that doesn't fit the ranks, say. Nothing has been done.
    #[error("{0}")]
    Invalid(String),
    /// A value was used as what it isn't on some axis: the gradient, or the result, would be wrong.
    #[error("{place}: {what}")]
    Spread {
        /// What doesn't fit, and what to do.
        what: String,
        /// Where in the caller's source.
        place: &'static Location<'static>,
    },
    /// Ranks that must hold the same don't.
    #[error("{0}")]
    Differs(String),
    /// What all ranks must do together failed on another rank.
    #[error("{what}: rank {rank}: {why}")]
    Elsewhere {
        /// What was being done.
        what: String,
        /// On which rank of the group.
        rank: usize,
        /// What it says.
        why: String,
    },
    /// Reading or writing a file failed.
    #[error("{doing}: {source}")]
    File {
        /// What was being done, and to which file.
        doing: String,
        /// What the system says.
        source: std::io::Error,
    },
}

impl Error {
    /// Something that can't be.
    pub fn invalid(text: impl Into<String>) -> Error {
        Error::Invalid(text.into())
    }
}

/// Says what was being done when something failed.
pub(crate) trait Doing<T> {
    /// With what was being done.
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Doing<T> for paceline_comm::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Communication { doing: what(), source })
    }
}

impl<T> Doing<T> for std::io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::File { doing: what(), source })
    }
}

#[cfg(feature = "candle")]
impl From<Error> for candle_core::Error {
    /// For errors inside of an operation that candle runs; [`Error::from`] brings them back out as candle's.
    fn from(error: Error) -> candle_core::Error {
        match error {
            Error::Tensor(error) => error,
            other => candle_core::Error::wrap(other),
        }
    }
}
