//! paceline for C. `include/paceline.h` says what each function does; this crate is its other side.
//!
//! The outline: `abi/` has the functions, each of which takes its arguments apart, in [`guard`], and calls what is below;
//! `handles.rs` is the table behind the handles; `comm.rs`, `call.rs`, `work.rs` and `group.rs` are communicators, calls, works
//! and groups; `error.rs` and `last.rs` are what goes wrong and where it is kept. Pointers are followed in `abi/` and `call.rs`
//! only.

mod abi;
mod call;
mod comm;
mod config;
#[cfg(feature = "cuda")]
mod device;
mod error;
mod group;
mod guard;
mod handles;
mod last;
mod log;
#[cfg(any(test, feature = "cuda"))]
mod rounds;
mod work;

pub use abi::*;
