//! What a training run is made of.

use crate::data::ReplicatedOptions;
use crate::nn::{GptConfig, Recompute};
use crate::optimizer::{Clip, Schedule};
use crate::parameter::ParameterOptions;
use crate::pipeline::Schedule as Table;
use crate::pipeline::partition::Partition;
use crate::precision::LossScalerOptions;
use crate::sharded::ShardedOptions;

/// How the training state is spread over the data axes.
#[derive(Clone)]
pub enum StateOptions {
    /// Every rank has it whole.
    Replicated(ReplicatedOptions),
    /// Each rank has a part; layers are units.
    Sharded(ShardedOptions),
}

/// In which order stages take micro-batches. A name or a table becomes one by `into`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScheduleOptions {
    /// As a row in [`SCHEDULES`](crate::pipeline::SCHEDULES) of this name says.
    Row(String),
    /// As a table of one's own says, which [`text::parse`](crate::pipeline::text::parse) reads, say.
    Table(Table),
}

impl From<&str> for ScheduleOptions {
    fn from(name: &str) -> ScheduleOptions {
        ScheduleOptions::Row(name.to_owned())
    }
}

impl From<Table> for ScheduleOptions {
    fn from(table: Table) -> ScheduleOptions {
        ScheduleOptions::Table(table)
    }
}

/// How a model is run as a pipeline.
#[derive(Clone, Debug)]
pub struct PipelineOptions {
    /// In which order stages take micro-batches.
    pub schedule: ScheduleOptions,
    /// Stages on each rank, for schedules that leave it open.
    pub chunks: u32,
    /// How many micro-batches each step has on every rank; a table's must be as many.
    pub micro_batches: u32,
    /// Which layers each stage has, drawn, say ([`Partition::drawn`]); as even as possible with `None`.
    pub partition: Option<Partition>,
}

impl Default for PipelineOptions {
    fn default() -> PipelineOptions {
        PipelineOptions { schedule: "one_f_one_b".into(), chunks: 1, micro_batches: 1, partition: None }
    }
}

/// What a training run is made of. The layout is the mesh's.
#[derive(Clone)]
pub struct TrainerOptions {
    /// The model.
    pub model: GptConfig,
    /// Its parameters' seed and type.
    pub parameters: ParameterOptions,
    /// Whether activations between layers are cut along the sequence, among the ranks along `tp`.
    pub sequence: bool,
    /// What is computed again in the backward pass.
    pub recompute: Recompute,
    /// How stages take turns, where there are ranks along `pp`.
    pub pipeline: PipelineOptions,
    /// How the state is spread.
    pub state: StateOptions,
    /// The learning rate of each step.
    pub learning_rate: Schedule,
    /// The limit of the gradient's norm.
    pub clip: Option<Clip>,
    /// Scaling of the loss, for f16.
    pub scaler: Option<LossScalerOptions>,
}

impl TrainerOptions {
    /// A model whose state is replicated, with a constant learning rate, clipped at a norm of 1.
    #[must_use]
    pub fn new(model: GptConfig, learning_rate: f64) -> TrainerOptions {
        TrainerOptions {
            model,
            parameters: ParameterOptions::default(),
            sequence: false,
            recompute: Recompute::Nothing,
            pipeline: PipelineOptions::default(),
            state: StateOptions::Replicated(ReplicatedOptions::default()),
            learning_rate: Schedule::constant(learning_rate),
            clip: Some(Clip { norm: crate::optimizer::Norm::L2, max: 1.0 }),
            scaler: None,
        }
    }
}
