//! Whether this process is a forked child of the one that made something.
//!
//! A child has copies of its parent's sockets and mappings, but none of its threads. What the parent has made belongs to
//! the parent: a child that spoke for it would garble what its peers hear.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

static FORKS: AtomicU32 = AtomicU32::new(0);

/// A mark of the process: a forked child has another one than its parent. Cheap enough to be compared in every call.
///
/// Children that are made behind the C library's back (`clone`, `vfork`) aren't told apart.
#[must_use]
pub fn generation() -> u32 {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        if let Err(error) = sys::at_fork_in_child(forked) {
            tracing::debug!("forks aren't noticed: {error}");
        }
    });
    FORKS.load(Ordering::Relaxed)
}

/// Runs in the child alone, before anything else there.
extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
