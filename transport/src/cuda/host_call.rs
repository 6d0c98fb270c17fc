//! Functions of the host in a stream: a thread of the driver's calls them when the stream gets there.
//!
//! They must not call the driver, nor drop what does (memory, events), and should be short: what comes after them in the stream
//! waits, and so may other streams' functions. If the context is lost before, they are never called.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{CudaError, Stream};

type Once = Box<dyn FnOnce() + Send>;

/// Functions that streams have yet to call once, by the numbers that streams have of them. A number that is called again, because
/// its stream was being captured after all, means nothing any more, where a pointer would.
static WAITING: Mutex<BTreeMap<usize, Once>> = Mutex::new(BTreeMap::new());

fn wait_for_call(function: Once) -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    WAITING.lock().unwrap_or_else(PoisonError::into_inner).insert(number, function);
    number
}

fn take(number: usize) -> Option<Once> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner).remove(&number)
}

/// A function that a stream, or a graph that was made of one, may call any number of times.
pub struct HostFunction(Box<dyn Fn() + Send + Sync>);

impl HostFunction {
    /// Makes it callable by streams. It must not call the driver; a panic in it is logged.
    pub fn new(function: impl Fn() + Send + Sync + 'static) -> Arc<HostFunction> {
        Arc::new(HostFunction(Box::new(function)))
    }
}

impl std::fmt::Debug for HostFunction {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "host function {:p}", self.0)
    }
}

impl Stream {
    /// Has `function` called once, when all that was before it in the stream is done; what comes after waits until it
    /// returns. It must not call the driver; a panic in it is logged.
    ///
    /// If the context is lost before, it is neither called nor dropped.
    ///
    /// # Errors
    /// If the stream is being captured, since a graph may run many times ([`Stream::host_call_shared`]), or if the context is
    /// lost.
    pub fn host_call(&self, function: Box<dyn FnOnce() + Send>) -> Result<(), CudaError> {
        self.not_capturing("call a function once")?;
        let _current = self.device().make_current()?;
        let number = wait_for_call(function);
        let data = std::ptr::without_provenance_mut(number);
        // SAFETY: `call_once` takes numbers.
        let code = unsafe { (self.functions().cuLaunchHostFunc)(self.raw(), Some(call_once), data) };
        self.check("cuLaunchHostFunc", code).inspect_err(|_| drop(take(number)))
    }

    /// As [`Stream::host_call`], for a function that may be called many times: also while the stream is being captured.
    ///
    /// # Safety
    /// The caller holds the function until the stream has called it and, if the stream is being captured, until the graph is
    /// gone and its last run has ended.
    ///
    /// # Errors
    /// If the context is lost.
    pub unsafe fn host_call_shared(&self, function: &Arc<HostFunction>) -> Result<(), CudaError> {
        let _current = self.device().make_current()?;
        let data = Arc::as_ptr(function).cast_mut().cast();
        // SAFETY: the caller holds the function, which may be called by several threads.
        let code = unsafe { (self.functions().cuLaunchHostFunc)(self.raw(), Some(call_shared), data) };
        self.check("cuLaunchHostFunc", code)
    }
}

/// `data` is a number of [`WAITING`].
unsafe extern "C" fn call_once(data: *mut c_void) {
    if let Some(function) = take(data.addr()) {
        caught(function);
    }
}

/// # Safety
/// `data` is a function that is held during the call.
unsafe extern "C" fn call_shared(data: *mut c_void) {
    // SAFETY: as above.
    let function = unsafe { &*data.cast_const().cast::<HostFunction>() };
    caught(|| (function.0)());
}

/// No panic may cross the driver.
fn caught(function: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(function)).is_err() {
        tracing::error!("a function that a CUDA stream called has panicked; the stream goes on");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn functions_are_called_through_their_pointers_and_panics_stay_in_them() {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = calls.clone();
        let number = wait_for_call(Box::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        }));
        for _ in 0..2 {
            // SAFETY: it is a number.
            unsafe { call_once(std::ptr::without_provenance_mut(number)) };
        }
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        assert_eq!(Arc::strong_count(&calls), 1, "what was called once is dropped");

        let counted = calls.clone();
        let shared = HostFunction::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            panic!("planted");
        });
        for _ in 0..3 {
            // SAFETY: it is held here.
            unsafe { call_shared(Arc::as_ptr(&shared).cast_mut().cast()) };
        }
        assert_eq!(calls.load(Ordering::Relaxed), 4);
    }
}
