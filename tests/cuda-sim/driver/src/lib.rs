//! A CUDA driver in software: the calls of the driver API that paceline makes, on a machine without a GPU.
//!
//! `README.md` says what it does as CUDA does, what it finds, what it can't, and which variables turn its knobs.

mod capture;
mod clock;
mod context;
mod device;
mod driver;
mod error;
mod event;
mod exports;
mod fault;
mod graph;
mod handle;
mod ipc;
mod knobs;
mod mapping;
mod memory;
mod module;
mod operation;
mod point;
mod race;
mod stream;
mod value;

/// The name of the library that this crate is built as, for who looks for it.
pub const LIBRARY: &str = "libpaceline_cuda_driver.so";
