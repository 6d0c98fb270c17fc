//! Calls that were started and go on by themselves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use paceline_comm::{Communicator as Comm, Started};
use pyo3::prelude::*;

use crate::errors;
use crate::interrupt::{LOOK_EVERY, check_may_wait};
use crate::options::Time;

/// A started call. It holds its arrays, and goes on by itself, also when this is dropped.
#[pyclass(frozen, module = "paceline")]
pub struct Work {
    started: Started,
    /// A communicator that is dropped ends its calls.
    comm: Arc<Comm>,
    result: Option<Py<PyAny>>,
    _kept: Arc<Vec<Py<PyAny>>>,
}

impl Work {
    pub fn new(started: Started, comm: Arc<Comm>, result: Option<Py<PyAny>>, kept: Arc<Vec<Py<PyAny>>>) -> Work {
        Work { started, comm, result, _kept: kept }
    }
}

#[pymethods]
impl Work {
    /// Whether the call has ended, well or not.
    fn test(&self) -> bool {
        self.started.test().is_some()
    }

    /// Waits for the end, at most `timeout`: True when it came, False when the time ran out first. The call goes on then, and
    /// also when a signal's handler raises (KeyboardInterrupt).
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<Time>) -> PyResult<bool> {
        check_may_wait(py)?;
        let deadline = timeout.and_then(|Time(time)| Instant::now().checked_add(time));
        loop {
            let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
            if py.detach(|| self.started.wait_timeout(left.min(LOOK_EVERY))).is_some() {
                break;
            }
            if left.is_zero() {
                return Ok(false);
            }
            py.check_signals()?;
        }
        let place = (self.comm.rank(), self.comm.size());
        self.started.wait().map(|()| true).map_err(|error| errors::of(py, place, &error))
    }

    /// Waits for the end and gives the array with the result, if there is one.
    fn result(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.wait(py, None)?;
        Ok(self.result.as_ref().map(|result| result.clone_ref(py)))
    }

    fn __await__<'py>(slf: Bound<'py, Work>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("paceline._awaiting")?.call_method1("finish", (&slf,))?.call_method0("__await__")
    }

    fn __repr__(&self) -> &'static str {
        if self.test() { "<paceline.Work: ended>" } else { "<paceline.Work: under way>" }
    }
}
