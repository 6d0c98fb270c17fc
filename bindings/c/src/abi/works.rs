//! Works and groups.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use super::give;
use crate::error::{Failure, IN_PROGRESS, SUCCESS, pclResult};
use crate::group;
use crate::guard::guard;
use crate::work;

/// Runs a body that has a result of its own, which isn't kept again.
fn guarded(name: &str, body: impl FnOnce() -> Result<pclResult, Failure>) -> pclResult {
    let mut code = SUCCESS;
    let guarded = guard(name, || {
        code = body()?;
        Ok(())
    });
    if guarded == SUCCESS { code } else { guarded }
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclWorkTest(work: *mut c_void, done: *mut c_int) -> pclResult {
    guarded("pclWorkTest", || {
        // SAFETY: as C promises.
        unsafe { give(done, "done", 0) }?;
        let code = work::find(work)?.wait(Some(Duration::ZERO));
        if code == IN_PROGRESS {
            return Ok(SUCCESS);
        }
        // SAFETY: as C promises.
        unsafe { give(done, "done", 1) }?;
        Ok(code)
    })
}

/// See `paceline.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pclWorkWait(work: *mut c_void, timeout_ms: u64) -> pclResult {
    let timeout = (timeout_ms != u64::MAX).then(|| Duration::from_millis(timeout_ms));
    guarded("pclWorkWait", || Ok(work::find(work)?.wait(timeout)))
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclWorkJoin(work: *mut c_void, stream: *mut c_void) -> pclResult {
    guard("pclWorkJoin", || {
        let work = work::find(work)?;
        #[cfg(feature = "cuda")]
        // SAFETY: as C promises, `stream` is one.
        return unsafe { crate::device::join(&work, stream) };
        #[cfg(not(feature = "cuda"))]
        {
            let _ = (work, stream);
            Err(Failure::usage("this library was built without CUDA: works have no streams"))
        }
    })
}

/// See `paceline.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pclWorkFree(work: *mut c_void) -> pclResult {
    guard("pclWorkFree", || work::free(work))
}

/// See `paceline.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pclGroupStart() -> pclResult {
    guard("pclGroupStart", group::open)
}

/// See `paceline.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pclGroupEnd() -> pclResult {
    guarded("pclGroupEnd", || group::end("pclGroupEnd"))
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclGroupEndStart(work: *mut *mut c_void) -> pclResult {
    guard("pclGroupEndStart", || {
        // SAFETY: as C promises.
        unsafe { give(work, "work", std::ptr::null_mut()) }?;
        let handle = group::end_start("pclGroupEndStart")?;
        // SAFETY: the same.
        unsafe { give(work, "work", handle) }
    })
}
