//! Errors as Python's exceptions. The classes are Python's own, in `_errors.py`.

use std::fmt;

use paceline_comm::{Collective, Communicator, Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

fn make(py: Python<'_>, message: String, kind: &str, rank: Option<usize>, error: Option<&Error>) -> PyErr {
    let made = || {
        let find = || Ok::<_, PyErr>(py.import("paceline._errors")?.getattr("make")?.unbind());
        let report = PyDict::new(py);
        if let Some(error) = error {
            report.set_item("peers", error.peers())?;
            report.set_item("call", error.call().map(ToString::to_string))?;
            report.set_item("round", error.round())?;
            report.set_item("cause", error.cause())?;
            report.set_item("hint", error.what_to_try())?;
            report.set_item("reporter", error.reporter())?;
        }
        report.set_item("rank", rank)?;
        MAKE.get_or_try_init(py, find)?.bind(py).call((kind, message), Some(&report))
    };
    made().map_or_else(|error| error, PyErr::from_value)
}

/// An argument that can't be meant.
pub fn invalid(py: Python<'_>, cause: &str) -> PyErr {
    make(py, cause.to_owned(), ErrorKind::InvalidArgument.name(), None, None)
}

/// The same, in a call of a communicator.
pub fn at(py: Python<'_>, comm: &Communicator, cause: &str) -> PyErr {
    let message = format!("rank {} of {}: {cause}", comm.rank(), comm.size());
    make(py, message, ErrorKind::InvalidArgument.name(), Some(comm.rank()), None)
}

/// What the library says, where there is no communicator yet.
pub fn alone(py: Python<'_>, error: &Error) -> PyErr {
    make(py, error.to_string(), error.kind().name(), None, Some(error))
}

/// What the library says of a communicator.
pub fn of(py: Python<'_>, (rank, size): (usize, usize), error: &Error) -> PyErr {
    make(py, format!("rank {rank} of {size}: {error}"), error.kind().name(), Some(rank), Some(error))
}

/// An array of a call, as errors name it.
#[derive(Clone, Copy)]
pub struct What<'a> {
    pub comm: &'a Communicator,
    pub collective: Collective,
    pub which: &'static str,
}

impl What<'_> {
    /// What is wrong with it.
    pub fn invalid(self, py: Python<'_>, cause: &str) -> PyErr {
        at(py, self.comm, cause)
    }
}

impl fmt::Display for What<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} of {}", self.which, self.collective)
    }
}
