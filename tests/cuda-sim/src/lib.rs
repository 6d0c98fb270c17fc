//! CUDA without a GPU: the kernels, run on the host and compiled by NVRTC, and the driver in software, for suites that use
//! devices. `docs/cuda.md` says what that proves.

pub mod host;
mod machine;
pub mod nvrtc;
pub mod room;
mod simulated;
pub mod world;

pub use machine::{Machine, is_on_gpus, jobs, turn};
pub use simulated::{Loaded, Simulated};

use paceline_comm::device::Kernel;
use paceline_comm::{DataType, ReduceOp};

/// Every operator, with a factor where it needs one; the factor is no part of a kernel.
pub const OPERATORS: [ReduceOp; 6] =
    [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg, ReduceOp::PreMulSum(0)];

/// The kernels that fold what one GPU can read: every element type with every operator.
pub fn reductions() -> impl Iterator<Item = Kernel> {
    pairs().map(|(data_type, op)| Kernel::Reduce(data_type, op))
}

/// The kernels of collectives between ranks.
pub fn collectives() -> impl Iterator<Item = Kernel> {
    let folds = pairs().map(|(data_type, op)| Kernel::Fold(data_type, op));
    let folds = folds.chain(pairs().map(|(data_type, op)| Kernel::TwoShot(data_type, op)));
    let folds = folds.chain(pairs().map(|(data_type, op)| Kernel::FoldLent(data_type, op)));
    let folds = folds.chain(pairs().map(|(data_type, op)| Kernel::TwoShotLent(data_type, op)));
    folds.chain([Kernel::Copy, Kernel::CopyLent, Kernel::Mail, Kernel::Flags])
}

/// The element types that the kernels are tried with which read lent arrays: all that they do with elements, the others do too.
pub const LENT: [DataType; 4] = [DataType::U8, DataType::Bf16, DataType::F32, DataType::I64];

fn pairs() -> impl Iterator<Item = (DataType, ReduceOp)> {
    DataType::ALL.into_iter().flat_map(|data_type| OPERATORS.map(|op| (data_type, op)))
}
