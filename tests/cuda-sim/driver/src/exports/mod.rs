//! The functions that programs call, by theme. Their names, arguments and numbers are those of CUDA 12.

mod capture;
mod context;
mod copy;
mod device;
mod event;
mod general;
mod ipc;
mod memory;
mod module;
mod pointer;
mod stream;

use crate::error::{Code, Status};

/// Defines functions of the driver API: what they return is what their body comes to.
macro_rules! api {
    ($( $(#[$meta:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block )*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, unused_unsafe, clippy::redundant_closure_call)]
        unsafe extern "C" fn $name($($argument: $kind),*) -> $crate::error::Code {
            // SAFETY: callers give pointers to what the driver's documentation says, or null.
            let body = || -> $crate::error::Status { unsafe { $body } };
            $crate::error::number(body())
        }
    )*};
}
pub(crate) use api;

/// Writes a result.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` when there is no place for it.
///
/// # Safety
///
/// `place` is null, or a place for a `T`.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Status {
    if place.is_null() {
        return Err(Code::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller gives a place.
    unsafe { place.write(value) };
    Ok(())
}

/// The same, where null means that nobody asks.
///
/// # Safety
///
/// As for [`put`].
pub(crate) unsafe fn put_if_asked<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller gives a place.
        unsafe { place.write(value) };
    }
}
