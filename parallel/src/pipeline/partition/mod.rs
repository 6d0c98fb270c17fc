//! Which layers each stage holds.
//!
//! Four ways to say it: as evenly as the number of layers allows ([`Partition::even`]), by a list
//! ([`Partition::listed`]), by weights ([`Partition::weighed`]), and drawn as a text ([`Partition::drawn`]).

mod drawn;
#[cfg(test)]
mod tests;
mod weighed;

use std::fmt::{self, Display, Formatter};

use thiserror::Error;

pub use weighed::Weights;

/// One layer of a model.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Layer {
    /// The embedding, first of all.
    Embedding,
    /// A transformer layer, from 0.
    Transformer(u32),
    /// A layer that predicts a token further ahead, from 0; behind all transformer layers.
    MultiToken(u32),
    /// The head and the loss, last of all.
    Loss,
}

/// Which layers each stage holds, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partition {
    /// The layers of each stage. A stage may have none.
    pub stages: Vec<Vec<Layer>>,
}

/// Why layers can't be divided so.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum PartitionError {
    /// Stages without anything to do.
    #[error("{n_items} layers can't be divided among {n_stages} stages: each must have one")]
    TooFew {
        /// How many layers, embedding and head counted where they can be a stage of their own.
        n_items: usize,
        /// How many stages.
        n_stages: usize,
    },
    /// There are no stages.
    #[error("there must be a stage")]
    NoStages,
    /// A list that names more or fewer layers than there are.
    #[error("the list {listed:?} has {} layers, but the model has {n_layers}", .listed.iter().map(|&n| u64::from(n)).sum::<u64>())]
    WrongSum {
        /// The list.
        listed: Vec<u32>,
        /// How many layers the model has.
        n_layers: u32,
    },
    /// A weight that is negative or not finite.
    #[error("{what} weighs {weight}, which is no weight")]
    NoWeight {
        /// What.
        what: String,
        /// Its weight.
        weight: f64,
    },
}

impl Partition {
    /// As even as the number of layers allows; where it doesn't divide, earlier stages have one more. The embedding is
    /// on the first stage, the loss on the last.
    ///
    /// # Errors
    ///
    /// When there are fewer layers than stages, or no stages.
    pub fn even(n_layers: u32, n_stages: u32) -> Result<Partition, PartitionError> {
        let (each, left) = match n_stages {
            0 => return Err(PartitionError::NoStages),
            _ if n_layers < n_stages => {
                return Err(PartitionError::TooFew { n_items: n_layers as usize, n_stages: n_stages as usize });
            }
            _ => (n_layers / n_stages, n_layers % n_stages),
        };
        let listed: Vec<u32> = (0..n_stages).map(|stage| each + u32::from(stage < left)).collect();
        Partition::listed(&listed, n_layers)
    }

    /// So many transformer layers on each stage; with 32, for example `[7, 8, 9, 8]`. The embedding is on the first
    /// stage, the loss on the last.
    ///
    /// # Errors
    ///
    /// When the list is empty, or its sum isn't the number of layers.
    pub fn listed(listed: &[u32], n_layers: u32) -> Result<Partition, PartitionError> {
        if listed.is_empty() {
            return Err(PartitionError::NoStages);
        }
        if listed.iter().map(|&n| u64::from(n)).sum::<u64>() != u64::from(n_layers) {
            return Err(PartitionError::WrongSum { listed: listed.to_vec(), n_layers });
        }
        let mut layers = (0..n_layers).map(Layer::Transformer);
        let mut stages: Vec<Vec<Layer>> = listed.iter().map(|&n| layers.by_ref().take(n as usize).collect()).collect();
        stages[0].insert(0, Layer::Embedding);
        stages[listed.len() - 1].push(Layer::Loss);
        Ok(Partition { stages })
    }

    /// How many stages there are.
    #[must_use]
    pub fn n_stages(&self) -> u32 {
        self.stages.len() as u32
    }

    /// The stage that holds the layer.
    #[must_use]
    pub fn stage_of(&self, layer: Layer) -> Option<u32> {
        (0..).zip(&self.stages).find_map(|(stage, layers)| layers.contains(&layer).then_some(stage))
    }
}

/// As a drawing that [`Partition::drawn`] reads.
impl Display for Partition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (stage, layers) in self.stages.iter().enumerate() {
            f.write_str(if stage == 0 { "" } else { "|" })?;
            for layer in layers {
                f.write_str(match layer {
                    Layer::Embedding => "E",
                    Layer::Transformer(_) => "t",
                    Layer::MultiToken(_) => "m",
                    Layer::Loss => "L",
                })?;
            }
        }
        Ok(())
    }
}
