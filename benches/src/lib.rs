//! The comparison of paceline with other libraries: `side_by_side`, `overlap`, `step_time`, and their parts;
//! and `device`, which measures on GPUs.

pub mod call;
pub mod chart;
pub mod csv;
#[cfg(feature = "cuda")]
pub mod device;
pub mod machine;
pub mod matrix;
pub mod network;
pub mod orders;
pub mod overlap;
pub mod pattern;
pub mod peers;
pub mod process;
pub mod results;
pub mod run;
pub mod shares;
pub mod step_time;
pub mod table;
mod worker;

pub use worker::{Work, worker};
