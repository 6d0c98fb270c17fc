//! Element types, operators, and the reductions over them.

mod types;

pub use types::{DataType, ReduceOp};
