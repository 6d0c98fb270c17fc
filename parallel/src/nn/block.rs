//! A layer of a transformer: attention and feed-forward, each of the normed input and added to it.

use super::gpt::GptConfig;
use super::{Dropout, Mlp, Norm, Pass, SelfAttention};
use crate::error::Result;
use crate::parameter::Builder;
use crate::tensor::TensorParallel;
use crate::value::Value;

/// `x + attention(norm(x))`, and of that `x + mlp(norm(x))`.
pub struct Block {
    attention_norm: Norm,
    attention: SelfAttention,
    mlp_norm: Norm,
    mlp: Mlp,
    dropouts: [Dropout; 2],
}

impl Block {
    /// Makes the parameters below `input_layernorm`, `self_attn`, `post_attention_layernorm` and `mlp`.
    ///
    /// # Errors
    /// There are such parameters, or the heads can't be cut.
    pub fn new(config: &GptConfig, builder: &Builder, tp: &TensorParallel) -> Result<Block> {
        let norm = |name| Norm::new(config.norm, &builder.at(name), config.width, config.norm_epsilon, tp);
        let attention_norm = norm("input_layernorm")?;
        let attention = SelfAttention::new(config, &builder.at("self_attn"), tp)?;
        let mlp_norm = norm("post_attention_layernorm")?;
        let mlp = Mlp::new(config, &builder.at("mlp"), tp)?;
        let dropout = |name| Dropout::new(builder.stream(name), config.dropout);
        let dropouts = [dropout("attention dropout")?, dropout("mlp dropout")?];
        Ok(Block { attention_norm, attention, mlp_norm, mlp, dropouts })
    }

    /// Activations between layers, [batch, positions, width], after this layer.
    ///
    /// # Errors
    /// The input is of another kind or shape, or a collective fails.
    #[track_caller]
    pub fn forward(&self, input: &Value, pass: &Pass) -> Result<Value> {
        let [attention_dropout, mlp_dropout] = &self.dropouts;
        let (placement, positions) = (&pass.placement, pass.positions());
        let taken = self.attention.forward(&self.attention_norm.forward(input)?, pass)?;
        let input = input.add(&attention_dropout.forward(&taken, placement, positions)?)?;
        let more = self.mlp.forward(&self.mlp_norm.forward(&input)?)?;
        input.add(&mlp_dropout.forward(&more, placement, positions)?)
    }
}
