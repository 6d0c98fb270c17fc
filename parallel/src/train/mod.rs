//! Training a [`Gpt`](crate::nn::Gpt) in any layout: the parts put together.
//!
//! Every part can be used without this. What is decided here is only their order: agree on the step's tokens, take the
//! micro-batches forward and back, add gradients, clip, update.

mod batch;
mod evaluate;
mod options;
mod plan;
mod resume;
mod stages;
mod trainer;

pub use batch::Batch;
pub use evaluate::Evaluation;
pub use options::{PipelineOptions, ScheduleOptions, StateOptions, TrainerOptions};
pub use trainer::{StepReport, Trainer};
