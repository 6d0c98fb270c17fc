//! Reductions on GPUs: the kernels' text, how it is compiled, and where what was compiled is kept.
//!
//! Nothing here needs CUDA or calls it, so that it is part of every build and `tests/cuda-sim` can prove the kernels on
//! machines without a GPU. No collective uses it yet: `docs/cuda.md` says what there is.
#![forbid(unsafe_code)]

mod arguments;
mod cache;
mod source;

pub use arguments::Arguments;
pub use cache::Cache;
pub use source::{Architecture, Key, Source, source};
