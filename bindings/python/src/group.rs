//! Calls that are collected and run as one.

use std::sync::Mutex;

use pyo3::prelude::*;

use crate::call::{Ask, Call, prepare};
use crate::communicator::Communicator;
use crate::errors;

/// Calls that run together: all are under way at the same time.
#[pyclass(frozen, module = "paceline")]
pub struct Group {
    comm: Py<Communicator>,
    /// What is collected; nothing more once it has run.
    collected: Mutex<Option<Collected>>,
}

#[derive(Default)]
struct Collected {
    calls: Vec<Call>,
    /// What holds the calls' arrays in their places.
    kept: Vec<Py<PyAny>>,
}

impl Group {
    pub fn new(comm: Py<Communicator>) -> Group {
        Group { comm, collected: Mutex::new(Some(Collected::default())) }
    }

    /// Adds a call; the array that will have its result.
    pub fn add(&self, py: Python<'_>, ask: Ask<'_, '_>) -> PyResult<Option<Py<PyAny>>> {
        let comm = self.comm.get().open(py)?;
        let prepared = prepare(py, &comm, ask)?;
        let kept = prepared.keep()?;
        let mut collected = self.collected.lock().expect("no panic while held");
        let collected = collected.as_mut().ok_or_else(|| errors::at(py, &comm, "the group has run: make another"))?;
        collected.kept.extend(kept);
        collected.calls.push(prepared.call);
        Ok(prepared.result)
    }
}

#[pymethods]
impl Group {
    /// Runs all calls and returns when all have ended.
    fn run(&self, py: Python<'_>) -> PyResult<()> {
        let collected = self.collected.lock().expect("no panic while held").take().unwrap_or_default();
        let ended = self.comm.get().run_all(py, &collected.calls);
        drop(collected.kept);
        ended
    }

    fn __enter__(slf: Py<Group>) -> Py<Group> {
        slf
    }

    /// Runs the calls, unless the block raised: then none has begun.
    #[pyo3(signature = (kind, _error, _trace))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        _error: Option<&Bound<'_, PyAny>>,
        _trace: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        if kind.is_none() { self.run(py) } else { Ok(()) }
    }

    fn __len__(&self) -> usize {
        self.collected.lock().expect("no panic while held").as_ref().map_or(0, |collected| collected.calls.len())
    }
}
