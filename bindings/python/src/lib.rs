//! The Python package `paceline`, as far as it is Rust: `python/paceline` is the rest.
//!
//! An array comes as a Python object, `array` finds its memory, `call` makes a request of the library's from it, and
//! `communicator`, `work` and `group` run it without the interpreter's lock.

mod allocate;
mod array;
mod call;
mod collectives;
mod communicator;
mod dlpack;
mod errors;
mod group;
mod interrupt;
mod kinds;
#[cfg(feature = "measure")]
mod measure;
mod operator;
mod options;
mod work;

// The functions of paceline.h, which this library exports beside its own.
use paceline as _;
use pyo3::prelude::*;

/// What `paceline` is made of; import that instead.
#[pymodule]
fn _paceline(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<communicator::Communicator>()?;
    module.add_class::<group::Group>()?;
    module.add_class::<operator::PreMulSum>()?;
    module.add_class::<work::Work>()?;
    module.add("has_cuda", cfg!(feature = "cuda"))?;
    #[cfg(feature = "measure")]
    module.add_function(wrap_pyfunction!(measure::all_reduce_seconds, module)?)?;
    Ok(())
}
