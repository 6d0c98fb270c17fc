//! The library's own calls in a loop, to compare Python's with: `benches/overhead.py` does.

use std::time::Instant;

use paceline_comm::ReduceOp;
use pyo3::prelude::*;

use crate::communicator::Communicator;
use crate::errors;

/// Seconds that a call takes from Rust: the mean of `calls` that reduce `elements` of f64 into another buffer.
#[pyfunction]
pub fn all_reduce_seconds(py: Python<'_>, comm: &Communicator, elements: usize, calls: usize) -> PyResult<f64> {
    let comm = comm.open(py)?;
    let ended = py.detach(|| {
        let (input, mut output) = (vec![1f64; elements], vec![0f64; elements]);
        let begin = Instant::now();
        for _ in 0..calls {
            comm.all_reduce(&input, &mut output, ReduceOp::Sum)?;
        }
        Ok(begin.elapsed().as_secs_f64() / calls as f64)
    });
    ended.map_err(|error| errors::alone(py, &error))
}
