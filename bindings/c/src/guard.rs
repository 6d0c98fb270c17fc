//! The border: nothing but a number crosses it. Panics become errors, errors are kept and become numbers.

#![forbid(unsafe_code)]

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::comm::{self, Comm};
use crate::error::{Failure, INTERNAL_ERROR, SUCCESS, pclResult};
use crate::last;

/// Runs the body of the function `name`.
#[inline]
pub(crate) fn guard(name: &str, body: impl FnOnce() -> Result<(), Failure>) -> pclResult {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(failure)) => tell(name, failure, None),
        Err(panic) => tell(name, panicked(&*panic), None),
    }
}

/// Runs the body of the function `name` for a communicator, which keeps the error, too.
#[inline]
pub(crate) fn on_comm(
    name: &str,
    handle: *mut c_void,
    body: impl FnOnce(&Arc<Comm>) -> Result<(), Failure>,
) -> pclResult {
    match catch_unwind(AssertUnwindSafe(|| comm::with(handle, |comm| told(name, comm, body)))) {
        Ok(Ok(code)) => code,
        Ok(Err(failure)) => tell(name, failure, None),
        Err(panic) => tell(name, panicked(&*panic), None),
    }
}

#[inline]
fn told(name: &str, comm: &Arc<Comm>, body: impl FnOnce(&Arc<Comm>) -> Result<(), Failure>) -> pclResult {
    match catch_unwind(AssertUnwindSafe(|| body(comm))) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(failure)) => tell(name, failure, Some(comm)),
        Err(panic) => tell(name, panicked(&*panic), Some(comm)),
    }
}

/// Keeps an error with the name of the function, and, where there is one, of the rank.
#[cold]
#[inline(never)]
pub(crate) fn tell(name: &str, mut failure: Failure, comm: Option<&Comm>) -> pclResult {
    failure.text = match comm {
        Some(comm) => format!("{name}, {}: {}", comm.whose(), failure.text),
        None => format!("{name}: {}", failure.text),
    };
    last::keep(&failure);
    let code = failure.code;
    if let Some(comm) = comm {
        comm.keep(failure);
    }
    code
}

#[cold]
fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    let text = text.unwrap_or("without a text");
    Failure::new(INTERNAL_ERROR, format!("panicked: {text}; this is a bug in paceline, please report it"))
}
