//! That waiting for ranks that are slower is counted, wherever in the end of a step it happens.

use std::time::Duration;

use crate::mlp::{Model, ranks};
use candle_core::DType;
use paceline_parallel::data::{Overlap, Replicated, ReplicatedOptions};
use paceline_parallel::mesh::{Axis, Mesh};
use paceline_parallel::sharded::{Sharded, ShardedOptions, Stage, layer_of, units_by};
use paceline_parallel::state::State;

/// How much later rank 1 begins.
const LATER: Duration = Duration::from_millis(300);

/// A step in which rank 1 is late.
fn step(mesh: &Mesh, model: &Model, state: &dyn State) {
    mesh.world().barrier().unwrap();
    if mesh.rank() == 1 {
        std::thread::sleep(LATER);
    }
    state.last_micro_batch();
    model.loss(mesh.rank()).unwrap().backward().unwrap();
    state.finish_gradients().unwrap();
}

/// Nothing lets a rank end its step before the other one begins its own.
fn has_waited(overlaps: &[Overlap]) {
    assert!(overlaps[0].waited > LATER / 2, "{:?}", overlaps[0]);
}

#[test]
fn a_rank_that_is_early_waits_for_the_others() {
    has_waited(&ranks("dp=2", |mesh| {
        let model = Model::new(DType::F64);
        let state = Replicated::new(model.parameters(), &mesh, ReplicatedOptions::default()).unwrap();
        step(&mesh, &model, &state);
        state.overlap()
    }));
    has_waited(&ranks("dp=2", |mesh| {
        let model = Model::new(DType::F64);
        let (shard_axes, replicate_axes, stage) = (vec![Axis::Dp], Vec::new(), Stage::Gradients);
        let options = ShardedOptions { shard_axes, replicate_axes, stage, ..ShardedOptions::default() };
        let state = Sharded::new(units_by(&model.parameters(), layer_of), &mesh, options).unwrap();
        step(&mesh, &model, &state);
        state.overlap()
    }));
}
