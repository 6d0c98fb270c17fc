//! One rank's part in training.

use std::sync::Arc;

use candle_core::DType;
use paceline_comm::ReduceOp;

use super::batch::Batch;
use super::options::{StateOptions, TrainerOptions};
use super::stages::{Stages, Work};
use crate::data::{Progress, Replicated};
use crate::error::{Doing, Error, Result};
use crate::group::Group;
use crate::mesh::{Axis, Mesh};
use crate::optimizer::{Ending, Optimizer, Outcome, Ownership, end_step};
use crate::parameter::Parameter;
use crate::pipeline::price::Timed;
use crate::pipeline::{Pipeline, Ties};
use crate::precision::LossScaler;
use crate::sharded::{Sharded, layer_of, units_by};
use crate::state::State;
use crate::tensor::TensorParallel;

/// The axes along which ranks have samples of their own.
const DATA: [Axis; 2] = [Axis::Dp, Axis::Fsdp];

/// One rank's part in training.
///
/// ```
/// use paceline_comm::Communicator;
/// use paceline_parallel::mesh::{Layout, Mesh, MeshOptions};
/// use paceline_parallel::nn::{GptConfig, Placement};
/// use paceline_parallel::optimizer::{AdamW, Optimizer};
/// use paceline_parallel::train::{Batch, Trainer, TrainerOptions};
/// use candle_core::{Device, Tensor};
///
/// let world = Communicator::in_process(1)?.remove(0);
/// let mesh = Mesh::new(world, Layout::single(), MeshOptions::default())?;
/// let options = TrainerOptions::new(GptConfig::new(11, 8, 2, 2), 1e-2);
/// let mut trainer = Trainer::new(mesh, options, Optimizer::new(AdamW::default()))?;
/// let tokens = Tensor::new(&[[1u32, 2, 3, 4]], &Device::Cpu)?;
/// let targets = Tensor::new(&[[2i64, 3, 4, 5]], &Device::Cpu)?;
/// let batch = |step| Batch { tokens: tokens.clone(), targets: targets.clone(), placement: Placement::training(step, [0], 4) };
/// let first = trainer.step(vec![batch(0)])?.loss;
/// let last = (1..20).map(|step| trainer.step(vec![batch(step)])).collect::<Result<Vec<_>, _>>()?.pop().unwrap().loss;
/// assert!(last < 0.5 * first);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Trainer {
    pub(super) mesh: Mesh,
    pub(super) options: TrainerOptions,
    pub(super) stages: Stages,
    pub(super) pipeline_group: Group,
    pub(super) data_group: Group,
    pub(super) pipeline: Pipeline,
    pub(super) state: Arc<dyn State>,
    pub(super) ownership: Ownership,
    pub(super) optimizer: Optimizer,
    pub(super) scaler: Option<LossScaler>,
    timeline: Vec<Timed>,
}

/// What came of a step, on all ranks alike.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StepReport {
    /// The mean loss over all tokens of all ranks.
    pub loss: f64,
    /// How many tokens those are.
    pub tokens: u64,
    /// What the step came to.
    pub outcome: Outcome,
    /// Forward passes whose activations were here at once at most; on this rank.
    pub most_in_flight: usize,
}

impl Trainer {
    /// Builds this rank's part of the model and of the state. All ranks of the mesh must be given the same options.
    ///
    /// # Errors
    /// The model can't be cut as the mesh says, ranks have different parameters, or they don't come together.
    pub fn new(mesh: Mesh, options: TrainerOptions, optimizer: Optimizer) -> Result<Trainer> {
        for axis in [Axis::Cp, Axis::Ep, Axis::Sp] {
            if mesh.size(axis) > 1 {
                let layout = mesh.layout();
                return Err(Error::invalid(format!(
                    "the layout {layout} has ranks along {axis}, which this model doesn't use"
                )));
            }
        }
        let (plan, partition) = options.pipeline.plan(mesh.size(Axis::Pp) as u32, options.model.layers)?;
        let tp = TensorParallel { group: Group::along(&mesh, &[Axis::Tp])?, sequence: options.sequence };
        let pipeline_group = Group::along(&mesh, &[Axis::Pp])?;
        let data_group = Group::along(&mesh, &DATA)?;
        let numbers = plan.stages_of(pipeline_group.rank() as u32);
        let stages = Stages::build(&options, &partition, &numbers, &mesh, &tp)?;
        let (ties, kept) = Ties::agree(&pipeline_group, &plan, &stages.parameters)?;
        let state: Arc<dyn State> = match &options.state {
            StateOptions::Replicated(options) => Arc::new(Replicated::new(kept, &mesh, options.clone())?),
            StateOptions::Sharded(options) => {
                Arc::new(Sharded::new(units_by(&kept, layer_of), &mesh, options.clone())?)
            }
        };
        ties.publish()?;
        let ownership = Ownership::agree(&mesh, state.as_ref())?;
        let scaler = options.scaler.map(LossScaler::new).transpose()?;
        let pipeline = Pipeline::new(plan, pipeline_group.clone(), stages.models.clone())?.with_ties(ties);
        let timeline = Vec::new();
        Ok(Trainer {
            mesh,
            options,
            stages,
            pipeline_group,
            data_group,
            pipeline,
            state,
            ownership,
            optimizer,
            scaler,
            timeline,
        })
    }

    /// The mesh.
    #[must_use]
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// The state, as checkpoints take it.
    #[must_use]
    pub fn state(&self) -> &dyn State {
        self.state.as_ref()
    }

    /// Which elements this rank owns, as checkpoints take it.
    #[must_use]
    pub fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    /// The optimizer.
    #[must_use]
    pub fn optimizer(&mut self) -> &mut Optimizer {
        &mut self.optimizer
    }

    /// The scaler of the loss, if it is scaled.
    #[must_use]
    pub fn scaler(&mut self) -> Option<&mut LossScaler> {
        self.scaler.as_mut()
    }

    /// This rank's parameters, copies of other ranks' among them.
    pub fn parameters(&self) -> impl Iterator<Item = &Parameter> {
        self.stages.parameters.values().flatten()
    }

    /// How many updates there have been.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.optimizer.count().steps
    }

    /// When this rank computed what, in the last step in which it had micro-batches: see
    /// [`Report::timeline`](crate::pipeline::Report::timeline).
    #[must_use]
    pub fn timeline(&self) -> &[Timed] {
        &self.timeline
    }

    /// Gives copies the values of a state that was loaded. All ranks call it.
    ///
    /// # Errors
    /// A rank is lost.
    pub fn loaded(&self) -> Result<()> {
        self.pipeline.ties().map_or(Ok(()), Ties::publish)
    }

    /// One step on this rank's micro-batches: all ranks along `pp` and `tp` give the same ones. Ranks along `dp` and `fsdp` may
    /// give different numbers of them, or none, if there is no pipeline.
    ///
    /// # Errors
    /// The micro-batches don't suit the schedule, a pass fails, no rank has a token with a target, or a rank is lost.
    pub fn step(&mut self, batches: Vec<Batch>) -> Result<StepReport> {
        let count = batches.len() as u64;
        let tokens = batches.iter().map(Batch::valid_tokens).sum::<Result<u64>>()?;
        let progress = Progress::agree(&self.data_group, count, tokens)?;
        if progress.tokens() == 0 {
            return Err(Error::invalid("no rank has a token with a target"));
        }
        self.state.begin_step(&progress)?;
        let scale = self.scaler.as_ref().map_or(1.0, LossScaler::scale);
        *self.stages.work.lock().expect("no panic while held") = Work { batches, scale };
        let (mut sum, mut most_in_flight) = (0.0, 0);
        if count > 0 {
            self.suit(count as u32)?;
            let report = self.pipeline.run(self.state.as_ref())?;
            for loss in report.losses.values() {
                sum += loss.to_dtype(DType::F64)?.to_scalar::<f64>()? / scale;
            }
            most_in_flight = report.most_in_flight;
            self.timeline = report.timeline;
        }
        let learning_rate = self.options.learning_rate.at(self.steps());
        let ending = Ending { learning_rate, tokens: progress.tokens() as f64, clip: self.options.clip };
        let outcome = end_step(
            &self.mesh,
            &self.ownership,
            self.state.as_ref(),
            &mut self.optimizer,
            self.scaler.as_mut(),
            &ending,
        )?;
        self.loaded()?;
        let mut loss = [if self.mesh.coordinate(Axis::Tp) == 0 { sum } else { 0.0 }];
        self.mesh.world().all_reduce_in_place(&mut loss, ReduceOp::Sum).doing(|| "adding up losses".to_owned())?;
        Ok(StepReport { loss: loss[0] / progress.tokens() as f64, tokens: progress.tokens(), outcome, most_in_flight })
    }

    /// Makes the pipeline one for so many micro-batches, which only one rank alone can do.
    fn suit(&mut self, micro_batches: u32) -> Result<()> {
        let planned = self.pipeline.schedule().n_micro_batches;
        if micro_batches == planned {
            return Ok(());
        }
        if self.pipeline_group.size() > 1 {
            return Err(Error::invalid(format!(
                "{micro_batches} micro-batches are given, and the pipeline is planned for {planned} \
                 (PipelineOptions::micro_batches)"
            )));
        }
        let schedule = self.options.pipeline.schedule_for(1, micro_batches)?;
        self.pipeline = Pipeline::new(schedule, self.pipeline_group.clone(), self.stages.models.clone())?;
        Ok(())
    }
}
