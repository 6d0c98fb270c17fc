//! The last error of each thread, and the texts that C is lent.

#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{CString, c_char};

use crate::error::Failure;

thread_local! {
    static LAST: RefCell<Option<Failure>> = const { RefCell::new(None) };
    static LENT: RefCell<CString> = RefCell::default();
}

/// Keeps an error for the calling thread. While the thread ends there is nowhere to keep it.
#[cold]
pub(crate) fn keep(failure: &Failure) {
    let _ = LAST.try_with(|last| last.replace(Some(failure.clone())));
}

pub(crate) fn kept() -> Option<Failure> {
    LAST.try_with(|last| last.borrow().clone()).ok().flatten()
}

/// A text for C, which lasts until the thread's next.
pub(crate) fn lend(text: &str) -> *const c_char {
    let text = c_text(text);
    LENT.try_with(|lent| {
        lent.replace(text);
        lent.borrow().as_ptr()
    })
    .unwrap_or(c"".as_ptr())
}

/// A text as C's: where there is a 0 in it, a blank.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text).or_else(|_| CString::new(text.replace('\0', " "))).unwrap_or_default()
}
