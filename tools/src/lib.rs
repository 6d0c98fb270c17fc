//! The command-line tools: the `*_perf` family, which speaks nccl-tests' language, and `paceline`, which starts ranks
//! and says, measures and keeps what the library chooses.

pub mod doctor;
pub mod draw;
pub mod explain;
pub mod launch;
pub mod log;
pub mod perf;
pub mod picture;
pub mod rows;
pub mod simulate;
pub mod svg;
pub mod topo;
pub mod tune;
