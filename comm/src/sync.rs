//! The primitives that the model checker replaces: `loom`'s under `--cfg loom`, the standard ones otherwise.

#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, atomic};
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, atomic};
