//! One rank fails in the user's code, by an error or by a panic: every other rank ends with an error that names it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use paceline_parallel::data::hook::{Plain, Reduction};
use paceline_parallel::data::{CommHook, Replicated, ReplicatedOptions};
use paceline_parallel::mesh::{Axis, Mesh};
use paceline_parallel::optimizer::{Optimizer, Sgd};
use paceline_parallel::sharded::{Sharded, ShardedOptions, Stage, layer_of, units_by};
use paceline_parallel::state::{Numbers, Segment, State};
use paceline_parallel::train::{PipelineOptions, StateOptions, Trainer, TrainerOptions};
use paceline_parallel::{Error, Group, Result};

use crate::layouts::{batches, llama, options};
use crate::mlp::{Model, TOKENS, descend, ranks};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Error,
    Panic,
}

const BOTH: [How; 2] = [How::Error, How::Panic];

impl How {
    fn fail(self) -> Result<()> {
        match self {
            How::Error => Err(Error::invalid("planted")),
            How::Panic => panic!("planted"),
        }
    }
}

/// Runs ranks of which one fails, and looks at what all of them say.
#[track_caller]
fn check(layout: &str, failing: usize, what: &str, body: impl Fn(Mesh) -> Result<()> + Sync) {
    let all = ranks(layout, |mesh| match catch_unwind(AssertUnwindSafe(|| body(mesh))) {
        Ok(Ok(())) => "nothing".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(panic) => format!("a panic: {}", panic.downcast_ref::<&str>().copied().unwrap_or("of another kind")),
    });
    for (rank, said) in all.iter().enumerate() {
        let wanted = if rank == failing { "planted".to_owned() } else { format!("rank {failing}") };
        assert!(said.contains(&wanted), "{what}, {layout}: rank {rank} says {said}; all say {all:#?}");
    }
}

/// Two good steps, and one in which rank 2 fails in the middle of its forward pass.
fn train(mesh: &Mesh, makes: impl Fn(&Model, &Mesh) -> Result<Box<dyn State>>, how: How) -> Result<()> {
    let model = Model::new(DType::F64);
    let state = makes(&model, mesh)?;
    for step in 0..3 {
        state.last_micro_batch();
        let through = |layer: usize| {
            if step == 2 && mesh.rank() == 2 && layer == 1 && how == How::Panic {
                panic!("planted");
            }
            true
        };
        let loss = model.loss_through(4 * step + mesh.rank(), through)?;
        if step == 2 && mesh.rank() == 2 {
            how.fail()?;
        }
        loss.backward()?;
        state.finish_gradients()?;
        descend(state.as_ref(), (4 * TOKENS) as u64)?;
    }
    Ok(())
}

#[test]
fn in_a_forward_pass_of_replicated_and_sharded_states() {
    for how in BOTH {
        check("dp=4", 2, &format!("replicated, {how:?}"), |mesh| {
            let makes = |model: &Model, mesh: &Mesh| -> Result<Box<dyn State>> {
                Ok(Box::new(Replicated::new(model.parameters(), mesh, ReplicatedOptions::default())?))
            };
            train(&mesh, makes, how)
        });
        for (layout, stage) in [
            ("fsdp=4", Stage::Optimizer),
            ("fsdp=4", Stage::Gradients),
            ("fsdp=4", Stage::Parameters),
            ("dp=2,fsdp=2", Stage::Parameters),
        ] {
            check(layout, 2, &format!("{stage:?}, {how:?}"), |mesh| {
                let makes = |model: &Model, mesh: &Mesh| -> Result<Box<dyn State>> {
                    let options = ShardedOptions { stage, ..ShardedOptions::default() };
                    Ok(Box::new(Sharded::new(units_by(&model.parameters(), layer_of), mesh, options)?))
                };
                train(&mesh, makes, how)
            });
        }
    }
}

/// A hook that fails on one rank, when it starts its second bucket or finishes it.
struct Failing {
    fails: bool,
    how: How,
    at_start: bool,
}

struct FailingEnd(How, Box<dyn Reduction>);

impl CommHook for Failing {
    fn start(&self, segments: &[Segment], gradients: Numbers, group: &Group) -> Result<Box<dyn Reduction>> {
        let is_second = segments.iter().all(|segment| segment.parameter.name() != "layers.2.down");
        match (self.fails && is_second, self.at_start) {
            (true, true) => self.how.fail()?,
            (true, false) => return Ok(Box::new(FailingEnd(self.how, Plain.start(segments, gradients, group)?))),
            (false, _) => {}
        }
        Plain.start(segments, gradients, group)
    }
}

impl Reduction for FailingEnd {
    fn is_ready(&self) -> bool {
        self.1.is_ready()
    }

    fn finish(self: Box<Self>) -> Result<Numbers> {
        self.0.fail()?;
        self.1.finish()
    }
}

#[test]
fn in_a_comm_hook() {
    for how in BOTH {
        for at_start in [true, false] {
            check("dp=3", 1, &format!("hook, {how:?}, at the start: {at_start}"), |mesh| {
                let fails = mesh.rank() == 1;
                let hook = Arc::new(Failing { fails, how, at_start });
                let options =
                    ReplicatedOptions { hook, bucket_bytes: 1024, first_bucket_bytes: 256, ..Default::default() };
                let model = Model::new(DType::F64);
                let state = Replicated::new(model.parameters(), &mesh, options)?;
                // Whose part in a sum is done learns in the next step that a rank is gone.
                for step in 0..2 {
                    state.last_micro_batch();
                    model.loss(3 * step + mesh.rank())?.backward()?;
                    state.finish_gradients()?;
                    descend(&state, (3 * TOKENS) as u64)?;
                }
                Ok(())
            });
        }
    }
}

/// The trainer's layouts of several axes: also ranks that never meet the one that fails name it.
#[test]
fn in_a_trainer_of_stages_and_replicas() {
    for (layout, failing) in
        [("pp=2,dp=2", 3), ("pp=2,dp=2", 0), ("dp=2,fsdp=2", 3), ("pp=2,fsdp=2", 2), ("dp=2,tp=2", 1)]
    {
        for how in BOTH {
            check(layout, failing, &format!("trainer, {how:?}"), |mesh| {
                let rank = mesh.rank();
                let data = [Axis::Dp, Axis::Fsdp];
                let place = mesh.layout().place(rank, &data) as u64;
                let base = options(llama());
                let micro_batches = 2;
                let pipeline = PipelineOptions { micro_batches, ..PipelineOptions::default() };
                let hook = Arc::new(Failing { fails: rank == failing && how == How::Panic, how, at_start: true });
                let state = if mesh.size(Axis::Fsdp) > 1 {
                    StateOptions::Sharded(ShardedOptions::default())
                } else {
                    StateOptions::Replicated(ReplicatedOptions { hook, ..ReplicatedOptions::default() })
                };
                if matches!(state, StateOptions::Sharded(_)) && how == How::Panic {
                    // Sharded states have no hook: the rank panics between two calls.
                    let mut trainer =
                        Trainer::new(mesh, TrainerOptions { state, pipeline, ..base }, Optimizer::new(Sgd::default()))?;
                    trainer.step(batches(0, place, 2, 2))?;
                    assert!(rank != failing, "planted");
                    return trainer.step(batches(1, place, 2, 2)).map(drop);
                }
                let mut trainer =
                    Trainer::new(mesh, TrainerOptions { state, pipeline, ..base }, Optimizer::new(Sgd::default()))?;
                let places = trainer.mesh().layout().size_of(&data) as u64;
                for step in 0..2 {
                    let mut batches = batches(step, place, places, micro_batches.into());
                    if step == 1 && rank == failing && how == How::Error {
                        // Neither the first stage nor the last one takes what is shorter than its placement says.
                        batches[1].tokens = Tensor::zeros((1, 1), DType::U32, &Device::Cpu)?;
                        batches[1].targets = Tensor::zeros((1, 1), DType::I64, &Device::Cpu)?;
                    }
                    trainer.step(batches).map_err(|error| match rank == failing {
                        true => Error::invalid(format!("planted: {error}")),
                        false => error,
                    })?;
                }
                Ok(())
            });
        }
    }
}
