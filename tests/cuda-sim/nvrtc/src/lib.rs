//! NVRTC in software: compiles CUDA C++ by the host's C++ compiler, into what the software driver loads and runs.
//!
//! `README.md` of the driver says what it takes of the language. The functions that programs call are those of NVRTC.

mod compile;
mod exports;
mod kernels;
mod options;

pub use compile::compiler;

/// The name of the library that this crate is built as, for who looks for it.
pub const LIBRARY: &str = "libpaceline_cuda_nvrtc.so";
