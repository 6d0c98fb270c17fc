//! One pass of a small model in some layout.

use std::collections::BTreeMap;

use candle_core::{DType, Tensor};
use paceline_comm::Communicator;
use paceline_parallel::autograd::defer_weight_gradients;
use paceline_parallel::mesh::Axis;
use paceline_parallel::nn::{Gpt, GptConfig, HeadKind, MlpKind, NormKind, Placement, PositionKind, Recompute};
use paceline_parallel::parameter::{Builder, Parameter, ParameterOptions};
use paceline_parallel::tensor::TensorParallel;
use paceline_parallel::value::Value;
use paceline_parallel::{Group, Result};

use crate::common::{Local, gradients, logical, ranks, stir, tokens};

pub const LEN: usize = 16;
pub const MICRO_BATCHES: u64 = 2;
pub const BATCH: u64 = 2;

/// 4 layers 32 wide, 4 heads, 2 key and value heads.
fn small(vocabulary: usize) -> GptConfig {
    GptConfig { key_value_heads: 2, mlp_width: 64, init_std: 0.1, ..GptConfig::new(vocabulary, 32, 4, 4) }
}

/// Like Llama, and evenly cut.
pub fn llama() -> GptConfig {
    small(64)
}

/// Like GPT-2, with dropout and a vocabulary that can't be cut evenly.
pub fn gpt2() -> GptConfig {
    GptConfig {
        mlp: MlpKind::Gelu,
        norm: NormKind::Layer,
        positions: PositionKind::Learned { positions: LEN + 3 },
        head: HeadKind::Tied,
        bias: true,
        dropout: 0.1,
        ..small(67)
    }
}

/// Biases, one key and value head, a feed-forward width and a vocabulary that can't be cut evenly.
pub fn uneven() -> GptConfig {
    GptConfig { bias: true, key_value_heads: 1, mlp_width: 30, dropout: 0.2, ..small(67) }
}

/// How a pass is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    pub ranks: usize,
    pub sequence: bool,
    pub recompute: Recompute,
    /// Whether the weights' gradients are computed after the backward pass.
    pub defers: bool,
    pub dtype: DType,
}

pub fn layout(ranks: usize, sequence: bool) -> Layout {
    Layout { ranks, sequence, recompute: Recompute::Nothing, defers: false, dtype: DType::F64 }
}

/// What a pass gave.
pub struct Outcome {
    pub loss: f64,
    pub tokens: usize,
    pub gradients: BTreeMap<String, Vec<f64>>,
    /// By rank.
    pub locals: Vec<BTreeMap<String, Local>>,
}

pub struct Model {
    pub gpt: Gpt,
    pub tp: TensorParallel,
    pub parameters: Vec<Parameter>,
}

impl Model {
    pub fn new(config: &GptConfig, layout: Layout, comm: Communicator) -> Model {
        let tp = TensorParallel { group: Group::of(comm, Axis::Tp), sequence: layout.sequence };
        let builder = Builder::new(ParameterOptions { seed: 1, dtype: layout.dtype });
        let gpt = Gpt::new(config.clone(), &builder, &tp).unwrap().with_recompute(layout.recompute);
        let parameters = builder.parameters();
        stir(&parameters);
        Model { gpt, tp, parameters }
    }

    /// The loss of a micro-batch, and how many tokens have a target.
    pub fn loss(&self, micro_batch: u64) -> Result<(Tensor, usize)> {
        let samples = micro_batch * BATCH..(micro_batch + 1) * BATCH;
        let (inputs, targets) = tokens(samples.clone(), LEN, self.gpt.config().vocabulary);
        let placement = Placement::training(3, samples, LEN);
        let logits = self.gpt.forward(&Value::invariant(inputs), &placement)?;
        let loss = self.gpt.loss(&logits, &targets)?;
        Ok((loss.sum.into_tensor(), loss.tokens))
    }

    /// All micro-batches forward and backward: the sum of losses, and how many tokens have a target.
    pub fn step(&self, defers: bool) -> Result<(f64, usize)> {
        let (mut sum, mut all) = (0.0, 0);
        for micro_batch in 0..MICRO_BATCHES {
            let (loss, tokens) = self.loss(micro_batch)?;
            if defers {
                let (found, work) = defer_weight_gradients(|| loss.backward());
                found?;
                work.run()?;
            } else {
                loss.backward()?;
            }
            sum += loss.to_dtype(DType::F64)?.to_scalar::<f64>()?;
            all += tokens;
        }
        Ok((sum, all))
    }
}

pub fn run(config: &GptConfig, layout: Layout) -> Outcome {
    let results = ranks(layout.ranks, |comm| {
        let model = Model::new(config, layout, comm);
        let (loss, tokens) = model.step(layout.defers).unwrap();
        (loss, tokens, gradients(&model.parameters, Axis::Tp))
    });
    let (loss, tokens, _) = results[0];
    assert!(results.iter().all(|result| (result.0, result.1) == (loss, tokens)), "ranks have different losses");
    let locals: Vec<_> = results.into_iter().map(|(_, _, gradients)| gradients).collect();
    Outcome { loss, tokens, gradients: logical(&locals), locals }
}
