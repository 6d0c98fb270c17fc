//! Signals while Python waits in a call: their handlers run, and what they raise ends the wait.

use std::cell::{Cell, RefCell};
use std::sync::mpsc;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::errors;

/// How often who waits for another thread looks for signals.
pub const LOOK_EVERY: Duration = Duration::from_millis(50);

thread_local! {
    /// What a handler raised while this thread waited inside the library.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// Whether this is the thread in which handlers run, once that is known.
    static IS_MAIN: Cell<Option<bool>> = const { Cell::new(None) };
    /// Whether this thread runs handlers in the midst of a call.
    static HANDLES: Cell<bool> = const { Cell::new(false) };
}

/// Runs the handlers of signals that have come; why the call is to be given up, if one of them raised something. Only in the
/// main thread do handlers run.
pub fn asked() -> Option<String> {
    // The interpreter's lock may be long in coming: only those who need it wait for it.
    if IS_MAIN.get() == Some(false) {
        return None;
    }
    let (name, error) = Python::try_attach(|py| {
        HANDLES.set(true);
        // What looks at whose thread this is runs Python's code, in which handlers run, too.
        let handled = if IS_MAIN.get().is_none() { is_main(py).map(|main| IS_MAIN.set(Some(main))) } else { Ok(()) };
        let handled = handled.and_then(|()| py.check_signals());
        HANDLES.set(false);
        let error = handled.err()?;
        let name = error.get_type(py).name().map_or_else(|_| "an exception".to_owned(), |name| name.to_string());
        Some((name, error))
    })??;
    RAISED.set(Some(error));
    Some(format!("the call was interrupted ({name})"))
}

fn is_main(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    threading.call_method0("get_ident")?.eq(main)
}

/// An error where a handler of a signal waits for ranks while the call that it interrupts is still under way, and has to go on
/// first.
pub fn check_may_wait(py: Python<'_>) -> PyResult<()> {
    if !HANDLES.get() {
        return Ok(());
    }
    let cause = "a handler of a signal that came during a call can't wait for ranks; raise something, or abort the communicator";
    Err(errors::invalid(py, cause))
}

/// How a call ended, or what was raised while this thread waited in it.
pub fn instead<T>(py: Python<'_>, end: PyResult<T>) -> PyResult<T> {
    let Some(raised) = RAISED.take() else { return end };
    raised.set_cause(py, end.err());
    Err(raised)
}

/// Runs work in a thread of its own and waits for it, looking for signals. If a handler raises, `give_up` is called and the
/// work is left to itself.
pub fn wait_for<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
    give_up: impl FnOnce(),
) -> PyResult<T> {
    check_may_wait(py)?;
    let (done, mut end) = mpsc::channel();
    let thread = std::thread::Builder::new().name("paceline-join".into()).spawn(move || {
        // Nobody waits any more if this fails.
        let _ = done.send(work());
    });
    thread.map_err(|error| PyRuntimeError::new_err(format!("starting a thread failed: {error}")))?;
    loop {
        let come;
        (end, come) = py.detach(move || {
            let come = end.recv_timeout(LOOK_EVERY);
            (end, come)
        });
        match come {
            Ok(result) => return Ok(result),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                if let Err(raised) = py.check_signals() {
                    give_up();
                    return Err(raised);
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the thread that joins the ranks has panicked"));
            }
        }
    }
}
