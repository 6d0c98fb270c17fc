//! Layers of a transformer that are differentiable throughout, on one rank or cut among several.
//!
//! candle's own norms, softmax and rotary embeddings cut the gradient off without a word: these don't, and
//! [`parameters_without_gradient`] finds out whether any layer does. Where a layer has parameters it takes a
//! [`TensorParallel`](crate::tensor::TensorParallel); a linear layer is a [`ColumnLinear`](crate::tensor::ColumnLinear) or
//! [`RowLinear`](crate::tensor::RowLinear), uncut in a group of one.

mod activation;
mod attention;
mod audit;
mod block;
mod dropout;
mod gpt;
mod layer_norm;
mod mlp;
mod norm;
mod pass;
mod placement;
mod position;
mod rms_norm;
mod rope;
mod self_attention;
mod softmax;
#[cfg(test)]
mod testing;

pub use activation::{gelu, swiglu};
pub use attention::{Attention, CausalAttention, attention};
pub use audit::parameters_without_gradient;
pub use block::Block;
pub use dropout::Dropout;
pub use gpt::{Gpt, GptConfig, HeadKind, MlpKind, NormKind, PositionKind, Stage};
pub use layer_norm::LayerNorm;
pub use mlp::Mlp;
pub use norm::Norm;
pub use pass::{Pass, Recompute};
pub use placement::{Phase, Placement};
pub use position::PositionEmbedding;
pub use rms_norm::RmsNorm;
pub use rope::{Rotation, rope};
pub use self_attention::SelfAttention;
pub use softmax::softmax;
