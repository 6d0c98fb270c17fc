//! New arrays for results, of the kind that their callers use.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

static EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// An array like `input`, with its shape unless another is given. What it holds is left open.
pub fn like<'py>(input: &Bound<'py, PyAny>, shape: Option<Vec<usize>>) -> PyResult<Bound<'py, PyAny>> {
    let py = input.py();
    let make = || Ok::<_, PyErr>(py.import("paceline._allocate")?.getattr("empty")?.unbind());
    let shape = shape.map(|shape| PyTuple::new(py, shape)).transpose()?;
    EMPTY.get_or_try_init(py, make)?.bind(py).call1((input, shape))
}
