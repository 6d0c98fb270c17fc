//! The functions of `paceline.h`, by their names in C. Each says `SAFETY` of what C promises there, and of nothing else.
//!
//! What all of them need of their callers: pointers to what the function reads or writes are valid for that, or null where the
//! header allows it, and texts end in 0.

mod calls;
mod comms;
mod data;
mod info;
mod making;
mod memory;
mod works;

pub use calls::*;
pub use comms::*;
pub use data::*;
pub use info::*;
pub use making::*;
pub use memory::*;
pub use works::*;

use crate::error::Failure;

/// Writes a result where C wants it.
///
/// # Safety
///
/// `target` is null or may be written.
unsafe fn give<T>(target: *mut T, what: &str, value: T) -> Result<(), Failure> {
    if target.is_null() {
        return Err(Failure::argument(format!("{what} is NULL")));
    }
    // SAFETY: the caller promises it. What lies there may be anything, and needn't be aligned.
    unsafe { target.write_unaligned(value) };
    Ok(())
}

/// As [`give`], where C may not want it.
///
/// # Safety
///
/// The same.
unsafe fn offer<T>(target: *mut T, value: T) {
    if !target.is_null() {
        // SAFETY: the caller promises it.
        unsafe { target.write_unaligned(value) };
    }
}

/// Writes a text, cut to `capacity` bytes with its 0.
///
/// # Safety
///
/// So many bytes may be written at `target`, and `needed` is null or may be written.
unsafe fn give_text(
    text: &str,
    target: *mut std::ffi::c_char,
    capacity: usize,
    needed: *mut usize,
) -> Result<(), Failure> {
    if target.is_null() && capacity > 0 {
        return Err(Failure::argument("text is NULL"));
    }
    let text = crate::last::c_text(text);
    let bytes = text.as_bytes();
    if let Some(most) = capacity.checked_sub(1) {
        let whole =
            (0..=most.min(bytes.len())).rev().find(|end| bytes.get(*end).is_none_or(|byte| byte & 0xc0 != 0x80));
        let end = whole.unwrap_or(0);
        // SAFETY: `end` is below `capacity` (the caller), and within the text.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target.cast::<u8>(), end) };
        // SAFETY: the same.
        unsafe { target.add(end).write(0) };
    }
    // SAFETY: the caller promises it.
    unsafe { offer(needed, bytes.len() + 1) };
    Ok(())
}
