//! Version, errors, logs.

use std::ffi::{c_char, c_int, c_void};

use super::{give, offer};
use crate::error::{Failure, SUCCESS, WORDS, pclResult};
use crate::guard::guard;
use crate::log::{self, pclLogCallback};
use crate::{comm, last};

const VERSION: c_int = {
    const fn number(text: &str) -> c_int {
        let (bytes, mut value, mut at) = (text.as_bytes(), 0, 0);
        while at < bytes.len() {
            value = 10 * value + (bytes[at] - b'0') as c_int;
            at += 1;
        }
        value
    }
    let (major, minor) = (number(env!("CARGO_PKG_VERSION_MAJOR")), number(env!("CARGO_PKG_VERSION_MINOR")));
    10_000 * major + 100 * minor + number(env!("CARGO_PKG_VERSION_PATCH"))
};

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclGetVersion(version: *mut c_int) -> pclResult {
    // SAFETY: as C promises.
    guard("pclGetVersion", || unsafe { give(version, "version", VERSION) })
}

/// See `paceline.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pclGetErrorString(result: c_int) -> *const c_char {
    let known = usize::try_from(result).ok().and_then(|result| WORDS.get(result).copied());
    known.unwrap_or("no result of paceline's\0").as_ptr().cast()
}

/// The last error of a communicator, or of this thread.
fn last_of(handle: *mut c_void) -> Option<Failure> {
    match comm::find(handle) {
        Ok(comm) => comm.last(),
        Err(_) => last::kept(),
    }
}

/// See `paceline.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pclGetLastError(comm: *mut c_void) -> *const c_char {
    let text = std::panic::catch_unwind(|| match last_of(comm) {
        Some(failure) => last::lend(&failure.text),
        None => c"".as_ptr(),
    });
    text.unwrap_or(c"".as_ptr())
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclGetLastErrorPeers(
    comm: *mut c_void,
    result: *mut pclResult,
    peers: *mut c_int,
    capacity: usize,
    count: *mut usize,
) -> pclResult {
    guard("pclGetLastErrorPeers", || {
        if peers.is_null() && capacity > 0 {
            return Err(Failure::argument("peers is NULL"));
        }
        let failure = last_of(comm).unwrap_or_else(|| Failure::new(SUCCESS, ""));
        for (at, peer) in failure.peers.iter().take(capacity).enumerate() {
            // SAFETY: `at` is below the capacity, and C promises so many.
            unsafe { peers.add(at).write_unaligned(c_int::try_from(*peer).unwrap_or(c_int::MAX)) };
        }
        // SAFETY: as C promises.
        unsafe {
            offer(result, failure.code);
            offer(count, failure.peers.len());
        }
        Ok(())
    })
}

/// See `paceline.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pclSetLogCallback(callback: Option<pclLogCallback>, user: *mut c_void, level: c_int) -> pclResult {
    guard("pclSetLogCallback", || log::set(callback, user, level))
}
