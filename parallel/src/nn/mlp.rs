//! The feed-forward layer: a wider one between two matrices, the first cut along its outputs, the second along its inputs.

use super::gpt::{GptConfig, MlpKind};
use super::{gelu, swiglu};
use crate::error::Result;
use crate::parameter::Builder;
use crate::tensor::{ColumnLinear, Columns, RowLinear, Rows, TensorParallel};
use crate::value::Value;

/// A feed-forward layer.
pub struct Mlp {
    input: ColumnLinear,
    kind: MlpKind,
    output: RowLinear,
}

impl Mlp {
    /// Makes the parameters `up_proj`, `down_proj` and for SwiGLU `gate_proj`, each with `.weight` and perhaps `.bias`.
    ///
    /// # Errors
    /// There are such parameters.
    pub fn new(config: &GptConfig, builder: &Builder, tp: &TensorParallel) -> Result<Mlp> {
        let (init, bias) = (config.init(), config.bias);
        let columns = |name| Columns { name, outputs: config.mlp_width, used: None, init, bias };
        let columns = match config.mlp {
            MlpKind::Gelu => vec![columns("up_proj")],
            MlpKind::SwiGlu => vec![columns("gate_proj"), columns("up_proj")],
        };
        let input = ColumnLinear::new(builder, config.width, &columns, tp)?;
        let matrix = Rows { inputs: config.mlp_width, outputs: config.width, init: config.output_init(), bias };
        Ok(Mlp { input, kind: config.mlp, output: RowLinear::new(&builder.at("down_proj"), &matrix, tp)? })
    }

    /// What becomes of activations between layers, [batch, positions, width].
    ///
    /// # Errors
    /// The input is of another kind or shape, or a collective fails.
    #[track_caller]
    pub fn forward(&self, input: &Value) -> Result<Value> {
        let hidden = self.input.forward(input)?;
        let hidden = match self.kind {
            MlpKind::Gelu => gelu(&hidden)?,
            MlpKind::SwiGlu => swiglu(&hidden)?,
        };
        self.output.forward(&hidden)
    }
}
