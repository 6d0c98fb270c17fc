//! The sizes and kinds of a model's parts.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::parameter::Init;

/// What stands between the matrices of a feed-forward layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MlpKind {
    /// [`gelu`](crate::nn::gelu).
    Gelu,
    /// [`swiglu`](crate::nn::swiglu), which needs a matrix more.
    SwiGlu,
}

/// Which norm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NormKind {
    /// [`LayerNorm`](crate::nn::LayerNorm).
    Layer,
    /// [`RmsNorm`](crate::nn::RmsNorm).
    Rms,
}

/// How a model knows positions.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum PositionKind {
    /// By embeddings that are learned, for as many positions.
    Learned {
        /// How many.
        positions: usize,
    },
    /// By turning heads ([`rope`](crate::nn::rope)).
    Rotary {
        /// What the angles' powers are of.
        base: f64,
    },
}

/// Where the head's matrix comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum HeadKind {
    /// It is the token embedding.
    Tied,
    /// It is a parameter of its own.
    Untied,
}

/// The sizes and kinds of a model's parts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GptConfig {
    /// How many tokens there are.
    pub vocabulary: usize,
    /// The width of activations between layers.
    pub width: usize,
    /// How many layers.
    pub layers: usize,
    /// How many query heads.
    pub heads: usize,
    /// How many key and value heads, each of which as many query heads share.
    pub key_value_heads: usize,
    /// The width within a feed-forward layer.
    pub mlp_width: usize,
    /// What stands there.
    pub mlp: MlpKind,
    /// Which norm.
    pub norm: NormKind,
    /// What a norm adds to the mean of squares.
    pub norm_epsilon: f64,
    /// How positions are known.
    pub positions: PositionKind,
    /// Where the head's matrix comes from.
    pub head: HeadKind,
    /// Whether linear layers have biases; the head has none.
    pub bias: bool,
    /// The probability of dropout: of embeddings, attention's probabilities, and what attention and feed-forward layers add.
    pub dropout: f64,
    /// The standard deviation of initial weights. That of the two matrices of a layer whose outputs are added to its input is
    /// divided by sqrt(2 layers).
    pub init_std: f64,
}

impl GptConfig {
    /// A model like Llama's, with feed-forward layers four times as wide, all heads with keys of their own, and nothing dropped.
    #[must_use]
    pub fn new(vocabulary: usize, width: usize, layers: usize, heads: usize) -> GptConfig {
        GptConfig {
            vocabulary,
            width,
            layers,
            heads,
            key_value_heads: heads,
            mlp_width: 4 * width,
            mlp: MlpKind::SwiGlu,
            norm: NormKind::Rms,
            norm_epsilon: 1e-5,
            positions: PositionKind::Rotary { base: 10_000.0 },
            head: HeadKind::Untied,
            bias: false,
            dropout: 0.0,
            init_std: 0.02,
        }
    }

    /// How many numbers a head has.
    #[must_use]
    pub fn head_size(&self) -> usize {
        self.width / self.heads
    }

    pub(crate) fn init(&self) -> Init {
        Init::Normal { std: self.init_std }
    }

    pub(crate) fn output_init(&self) -> Init {
        Init::Normal { std: self.init_std / (2.0 * self.layers as f64).sqrt() }
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.heads == 0 || !self.width.is_multiple_of(self.heads) {
            let (width, heads) = (self.width, self.heads);
            return Err(Error::invalid(format!("a width of {width} can't be cut into {heads} heads")));
        }
        Ok(())
    }
}
