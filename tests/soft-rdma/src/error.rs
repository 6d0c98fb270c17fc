//! What goes wrong here is told in words; nothing looks at kinds.

use std::fmt::Display;

/// A result whose error is a report for people.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be done.
#[derive(Debug)]
pub enum Error {
    /// The machine lacks something that the guest is made of: its tests are skipped.
    Missing(String),
    /// Something that is there did not work.
    Failed(String),
}

impl Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Error::Missing(why) | Error::Failed(why)) = self;
        f.write_str(why)
    }
}

/// Says what was being done when something failed.
pub trait Doing<T> {
    /// The value, or `<what>: <why not>`.
    fn doing(self, what: impl Display) -> Result<T>;
}

impl<T, E: Display> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl Display) -> Result<T> {
        self.map_err(|error| Error::Failed(format!("{what}: {error}")))
    }
}
