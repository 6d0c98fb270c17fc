//! Training on ranks that are threads or processes: every part, and all of them together, against one process.
//!
//! One program, since linking each of several would take longer than running them.

mod checkpoint;
mod common;
mod cut;
mod data;
mod failing;
mod layouts;
mod mlp;
mod mutants;
mod sharded;
mod tensor;
mod training;
