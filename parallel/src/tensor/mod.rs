//! Tensor and sequence parallel: each layer's matrices cut among ranks, and activations between layers along the sequence.
//!
//! A block has two pairs of layers, each cut along columns first and along rows then, so that only the second's output is
//! summed: one collective forward and one back for a pair (Megatron-LM, 2019). With the sequence cut, the sum becomes a
//! reduce_scatter and its counterpart an all_gather (Korthikanti et al., 2022), which together move as many bytes.

mod column;
mod cross_entropy;
mod embedding;
mod heads;
mod pending;
mod row;
mod tensor_parallel;
mod wide;

pub use column::{ColumnLinear, Columns};
pub use cross_entropy::{CrossEntropyOptions, Loss, cross_entropy};
pub use embedding::Embedding;
pub use heads::Heads;
pub(crate) use pending::rows;
pub use row::{RowLinear, Rows};
pub use tensor_parallel::TensorParallel;
pub(crate) use tensor_parallel::applies;
pub(crate) use wide::{narrow_to, wide};
