//! The CUDA kernels without a GPU: run on the host, and compiled by NVRTC. `docs/cuda.md` says what that proves.

pub mod host;
pub mod nvrtc;

use paceline_comm::{DataType, ReduceOp};

/// Every operator, with a factor where it needs one; the factor is no part of a kernel.
pub const OPERATORS: [ReduceOp; 6] =
    [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg, ReduceOp::PreMulSum(0)];

/// Every element type with every operator: one kernel each.
pub fn kernels() -> impl Iterator<Item = (DataType, ReduceOp)> {
    DataType::ALL.into_iter().flat_map(|data_type| OPERATORS.map(|op| (data_type, op)))
}
