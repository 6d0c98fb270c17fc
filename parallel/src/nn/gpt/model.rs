//! Embedding, layers and head.

use std::ops::Range;
use std::sync::Arc;

use candle_core::{DType, Tensor};

use super::{GptConfig, HeadKind, PositionKind};
use crate::autograd::recompute;
use crate::error::{Error, Result};
use crate::nn::{Attention, Block, CausalAttention, Dropout, Norm, Pass, Placement, PositionEmbedding};
use crate::nn::{Recompute, Rotation};
use crate::parameter::{Builder, Parameter};
use crate::tensor::{ColumnLinear, Columns, CrossEntropyOptions, Embedding, Loss, TensorParallel, cross_entropy};
use crate::value::{Kind, Spread, Value};

/// Which parts of a model are here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stage {
    /// Its layers, counted in the whole model.
    pub layers: Range<usize>,
    /// Whether it begins with the embedding.
    pub has_embedding: bool,
    /// Whether it ends with the last norm and the head.
    pub has_head: bool,
}

/// A decoder-only transformer, or a stage of one.
///
/// Parameters are called as in checkpoints of Llama, and the same in every layout: `model.embed_tokens.weight`,
/// `model.embed_positions.weight`, `model.layers.N.` with what [`Block::new`] says, `model.norm.weight`, `lm_head.weight`.
pub struct Gpt {
    config: GptConfig,
    tp: TensorParallel,
    embedding: Option<Tokens>,
    blocks: Vec<Arc<Block>>,
    head: Option<Head>,
    attention: Arc<dyn Attention>,
    recompute: Recompute,
    dtype: DType,
}

struct Tokens {
    table: Embedding,
    positions: Option<PositionEmbedding>,
    dropout: Dropout,
}

struct Head {
    norm: Norm,
    matrix: ColumnLinear,
}

impl Gpt {
    /// A whole model.
    ///
    /// # Errors
    /// The sizes don't fit together or can't be cut, or there are such parameters.
    pub fn new(config: GptConfig, builder: &Builder, tp: &TensorParallel) -> Result<Gpt> {
        let stage = Stage { layers: 0..config.layers, has_embedding: true, has_head: true };
        Gpt::stage(config, &stage, builder, tp)
    }

    /// Some layers of a model, with or without what comes before and after all layers.
    ///
    /// A stage that has the head but not the embedding to which it is tied takes the one of an earlier stage that was made at the
    /// same builder, or makes a copy of the same name: [`Ties`](crate::pipeline::Ties) bring copies together.
    ///
    /// # Errors
    /// The sizes don't fit together or can't be cut, there are no such layers, or there are such parameters.
    pub fn stage(config: GptConfig, stage: &Stage, builder: &Builder, tp: &TensorParallel) -> Result<Gpt> {
        config.check()?;
        if stage.layers.start > stage.layers.end || stage.layers.end > config.layers {
            return Err(Error::invalid(format!("layers {:?} of {} can't be had", stage.layers, config.layers)));
        }
        let model = builder.at("model");
        let table = || {
            let shape = [config.vocabulary, config.width];
            Embedding::new(&model.at("embed_tokens"), shape, Spread::invariant(), config.init(), tp)
        };
        let embedding = stage.has_embedding.then(|| Tokens::new(&config, table()?, &model, tp)).transpose()?;
        let block = |layer| Block::new(&config, &model.at("layers").at(layer), tp).map(Arc::new);
        let blocks = stage.layers.clone().map(block).collect::<Result<_>>()?;
        let tied = || match &embedding {
            Some(tokens) => Ok(tokens.table.weight().clone()),
            None => match model.at("embed_tokens").made("weight") {
                Some(weight) => Ok(weight),
                None => table().map(|table| table.weight().clone()),
            },
        };
        let head = stage.has_head.then(|| Head::new(&config, tied, builder, tp)).transpose()?;
        let (attention, recompute) = (Arc::new(CausalAttention), Recompute::Nothing);
        Ok(Gpt { tp: tp.clone(), embedding, blocks, head, attention, recompute, dtype: builder.dtype(), config })
    }

    /// The same model with another way for heads to attend.
    #[must_use]
    pub fn with_attention(self, attention: Arc<dyn Attention>) -> Gpt {
        Gpt { attention, ..self }
    }

    /// The same model, computing some of it again in the backward pass.
    #[must_use]
    pub fn with_recompute(self, recompute: Recompute) -> Gpt {
        Gpt { recompute, ..self }
    }

    /// The sizes and kinds of its parts.
    #[must_use]
    pub fn config(&self) -> &GptConfig {
        &self.config
    }

    /// The shape of what goes from one stage to the next on this rank, [batch, positions, width]; its kinds are those of
    /// [`TensorParallel::between_layers`].
    ///
    /// # Errors
    /// The sequence is to be cut, and can't be into equal parts.
    pub fn between_layers(&self, batch: usize, positions: usize) -> Result<[usize; 3]> {
        Ok([batch, self.tp.positions_here(positions)?.len(), self.config.width])
    }

    /// What the stage makes of its input: tokens of [batch, positions], if it has the embedding, or else what the stage before
    /// has made. Logits, of [batch, positions, this rank's part of the vocabulary], if it has the head.
    ///
    /// # Errors
    /// The input isn't as the placement and the stage say, or a collective fails.
    #[track_caller]
    pub fn forward(&self, input: &Value, placement: &Placement) -> Result<Value> {
        let pass = self.pass(placement)?;
        let mut hidden = match &self.embedding {
            Some(tokens) => tokens.forward(self.checked_tokens(input, placement)?, &pass)?,
            None => self.checked_hidden(input, placement)?.clone(),
        };
        for block in &self.blocks {
            hidden = if self.recompute == Recompute::Blocks {
                let (block, pass) = (block.clone(), pass.clone());
                recompute(&hidden, move |hidden| block.forward(hidden, &pass))?
            } else {
                block.forward(&hidden, &pass)?
            };
        }
        match &self.head {
            Some(head) => head.matrix.forward(&head.norm.forward(&hidden)?),
            None => Ok(hidden),
        }
    }

    /// The sum over tokens of the cross entropy of logits and the tokens that should come next, of [batch, positions]; -100
    /// where none is known.
    ///
    /// # Errors
    /// Those of [`cross_entropy`].
    #[track_caller]
    pub fn loss(&self, logits: &Value, targets: &Tensor) -> Result<Loss> {
        cross_entropy(&self.tp, logits, targets, CrossEntropyOptions::new(self.config.vocabulary))
    }

    fn pass(&self, placement: &Placement) -> Result<Pass> {
        let rotation = match self.config.positions {
            PositionKind::Learned { .. } => None,
            PositionKind::Rotary { base } => {
                Some(Rotation::new(&placement.positions, self.config.head_size(), base, self.dtype)?)
            }
        };
        let (attention, recompute) = (self.attention.clone(), self.recompute);
        Ok(Pass { rotation, attention, recompute, ..Pass::new(placement.clone(), &self.tp)? })
    }

    #[track_caller]
    fn checked_tokens<'a>(&self, input: &'a Value, placement: &Placement) -> Result<&'a Tensor> {
        self.tp.expect(input, Kind::Invariant, "a model's embedding", std::panic::Location::caller())?;
        let should = [placement.samples.len(), placement.positions.len()];
        if input.dims() != should {
            let is = input.dims();
            return Err(Error::invalid(format!(
                "tokens of {is:?} are given, and their placement is one of {should:?}"
            )));
        }
        Ok(input.tensor())
    }

    fn checked_hidden<'a>(&self, input: &'a Value, placement: &Placement) -> Result<&'a Value> {
        let should = self.between_layers(placement.samples.len(), placement.positions.len())?;
        if input.dims() != should {
            let is = input.dims();
            return Err(Error::invalid(format!("a stage is given {is:?}, and its placement is one of {should:?}")));
        }
        Ok(input)
    }
}

impl Tokens {
    fn new(config: &GptConfig, table: Embedding, model: &Builder, tp: &TensorParallel) -> Result<Tokens> {
        let positions = match config.positions {
            PositionKind::Learned { positions } => {
                let shape = [positions, config.width];
                Some(PositionEmbedding::new(&model.at("embed_positions"), shape, config.init(), tp)?)
            }
            PositionKind::Rotary { .. } => None,
        };
        Ok(Tokens { table, positions, dropout: Dropout::new(model.stream("embedding dropout"), config.dropout)? })
    }

    #[track_caller]
    fn forward(&self, tokens: &Tensor, pass: &Pass) -> Result<Value> {
        let found = self.table.forward(tokens)?;
        let found = match &self.positions {
            Some(positions) => positions.forward(&found, pass.positions())?,
            None => found,
        };
        self.dropout.forward(&found, &pass.placement, pass.positions())
    }
}

impl Head {
    fn new(
        config: &GptConfig,
        tied: impl FnOnce() -> Result<Parameter>,
        builder: &Builder,
        tp: &TensorParallel,
    ) -> Result<Head> {
        let norm = Norm::new(config.norm, &builder.at("model.norm"), config.width, config.norm_epsilon, tp)?;
        let matrix = match config.head {
            HeadKind::Tied => ColumnLinear::of(tied()?, tp),
            HeadKind::Untied => {
                let (outputs, init) = (config.vocabulary, config.init());
                let columns = Columns { name: "lm_head", outputs, used: None, init, bias: false };
                ColumnLinear::new(builder, config.width, &[columns], tp)?
            }
        };
        Ok(Head { norm, matrix })
    }
}
