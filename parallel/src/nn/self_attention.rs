//! Attention with its projections: queries, keys and values cut by heads along the outputs, the output projection along its
//! inputs.

use super::gpt::GptConfig;
use super::{Dropout, Pass, Recompute, rope};
use crate::autograd::recompute;
use crate::error::Result;
use crate::parameter::Builder;
use crate::tensor::{ColumnLinear, Columns, Heads, RowLinear, Rows, TensorParallel};
use crate::value::Value;

/// An attention layer.
pub struct SelfAttention {
    input: ColumnLinear,
    output: RowLinear,
    core: Core,
}

/// What is between the projections.
#[derive(Clone)]
struct Core {
    heads: Heads,
    size: usize,
    dropout: Dropout,
}

impl SelfAttention {
    /// Makes the parameters `q_proj`, `k_proj`, `v_proj` and `o_proj`, each with `.weight` and perhaps `.bias`.
    ///
    /// # Errors
    /// There are such parameters, or the heads can't be cut ([`Heads::of`]).
    pub fn new(config: &GptConfig, builder: &Builder, tp: &TensorParallel) -> Result<SelfAttention> {
        let (size, heads) = (config.head_size(), Heads::of(config.heads, config.key_value_heads, tp)?);
        let (init, bias) = (config.init(), config.bias);
        let used = || {
            let rows = heads.key_value.start * size..heads.key_value.end * size;
            heads.shares_key_value.then_some(rows)
        };
        let key_value = config.key_value_heads * size;
        let columns = [
            Columns { name: "q_proj", outputs: config.width, used: None, init, bias },
            Columns { name: "k_proj", outputs: key_value, used: used(), init, bias },
            Columns { name: "v_proj", outputs: key_value, used: used(), init, bias },
        ];
        let input = ColumnLinear::new(builder, config.width, &columns, tp)?;
        let matrix = Rows { inputs: config.width, outputs: config.width, init: config.output_init(), bias };
        let output = RowLinear::new(&builder.at("o_proj"), &matrix, tp)?;
        let dropout = Dropout::new(builder.stream("dropout"), config.dropout)?;
        Ok(SelfAttention { input, output, core: Core { heads, size, dropout } })
    }

    /// What each position takes from itself and earlier ones, of activations between layers, [batch, positions, width].
    ///
    /// # Errors
    /// The input is of another kind or shape, or a collective fails.
    #[track_caller]
    pub fn forward(&self, input: &Value, pass: &Pass) -> Result<Value> {
        let projected = self.input.forward(input)?;
        let taken = if pass.recompute == Recompute::Attention {
            let (core, pass) = (self.core.clone(), pass.clone());
            recompute(&projected, move |projected| core.forward(projected, &pass))?
        } else {
            self.core.forward(&projected, pass)?
        };
        self.output.forward(&taken)
    }
}

impl Core {
    /// From queries, keys and values, one after another along the last dimension, to what the queries take.
    fn forward(&self, projected: &Value, pass: &Pass) -> Result<Value> {
        let (queries, keys) = (self.heads.query.len(), self.heads.key_value.len());
        let heads = |first: usize, heads: usize| {
            projected.rearranged(|all| {
                let (batch, positions, _) = all.dims3()?;
                let some = all.narrow(2, first * self.size, heads * self.size)?;
                some.reshape((batch, positions, heads, self.size))
            })
        };
        let (query, key, value) = (heads(0, queries)?, heads(queries, keys)?, heads(queries + keys, keys)?);
        let turned = |heads: Value| match &pass.rotation {
            Some(rotation) => rope(&heads, rotation),
            None => Ok(heads),
        };
        let (query, key) = (turned(query)?, turned(key)?);
        let numbers = self.heads.query.clone();
        let taken = pass.attention.attend([&query, &key, &value], numbers, &pass.placement, &self.dropout)?;
        taken.rearranged(|taken| taken.flatten_from(2))
    }
}
