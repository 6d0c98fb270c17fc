//! Eight ranks, and states that add in one order: what differs then is nothing, not even the last bit.

use std::sync::Arc;

use paceline_parallel::data::hook::Ordered;
use paceline_parallel::data::{Adding, ReplicatedOptions};
use paceline_parallel::nn::Recompute;
use paceline_parallel::sharded::{Accumulate, Reduce};

use super::*;

const STAGES: [Stage; 3] = [Stage::Optimizer, Stage::Gradients, Stage::Parameters];

#[test]
fn eight_ranks_equal_one_process() {
    let base = options(llama());
    let alone = run("", &base);
    check("dp=8", &base, &alone);
    for stage in STAGES {
        check("fsdp=8", &sharded(base.clone(), stage), &alone);
        check("dp=2,fsdp=4", &sharded(base.clone(), stage), &alone);
    }
}

/// Layers whose values were let go are computed again in the backward pass, from values that are gathered again.
#[test]
fn what_is_computed_again_is_gathered_again() {
    for model in [llama(), gpt2_tied()] {
        let base = options(model);
        let alone = run("", &base);
        let again = TrainerOptions { recompute: Recompute::Blocks, ..base };
        check("", &again, &alone);
        for stage in STAGES {
            check("fsdp=8", &sharded(again.clone(), stage), &alone);
        }
        check("fsdp=2", &piped(sharded(again.clone(), Stage::Parameters), "one_f_one_b", 1, 4), &alone);
        check("fsdp=2,tp=2", &sharded(TrainerOptions { sequence: true, ..again }, Stage::Parameters), &alone);
    }
}

/// In single precision, without a limit of the norm, whose last bits depend on where elements lie.
#[test]
fn sharded_states_equal_a_replicated_one_to_the_bit() {
    let trained = |layout: &str, micro_batches: u32, state: StateOptions, recompute: Recompute| {
        let base = options(llama());
        let parameters = ParameterOptions { dtype: DType::F32, ..base.parameters };
        let clip = Some(Clip { norm: Norm::L2, max: f64::INFINITY });
        let options = TrainerOptions { parameters, clip, state, recompute, ..base };
        let found = run(layout, &piped(options, "one_f_one_b", 1, micro_batches));
        let losses: Vec<f64> = found.steps.iter().map(|(loss, _)| *loss).collect();
        (losses, found.values)
    };
    let replicated = ReplicatedOptions { hook: Arc::new(Ordered), ..ReplicatedOptions::default() };
    let (reduce, accumulate) = (Reduce::Ordered, Accumulate::InFull);
    let sharded = ShardedOptions { reduce, accumulate, ..ShardedOptions::default() };
    for (ranks, micro_batches) in [(8, 1), (4, 2)] {
        let replicated = StateOptions::Replicated(replicated.clone());
        let want = trained(&format!("dp={ranks}"), micro_batches, replicated, Recompute::Nothing);
        for stage in STAGES {
            for recompute in [Recompute::Nothing, Recompute::Blocks] {
                let state = StateOptions::Sharded(ShardedOptions { stage, ..sharded.clone() });
                for replicas in [1, 2, ranks / 2] {
                    let layout = format!("dp={replicas},fsdp={}", ranks / replicas);
                    let is = trained(&layout, micro_batches, state.clone(), recompute);
                    assert!(is == want, "{stage:?}, {layout}, {recompute:?}");
                }
            }
        }
    }
}

/// Eight micro-batches in all, on 1, 2, 4 and 8 ranks, in single precision: everything is added as one binary tree.
#[test]
fn the_number_of_ranks_costs_no_bit() {
    let trained = |ranks: u32, adding: Adding, recompute: Recompute| {
        let base = options(gpt2_tied());
        let parameters = ParameterOptions { dtype: DType::F32, ..base.parameters };
        let state = ReplicatedOptions { hook: Arc::new(Ordered), adding, ..ReplicatedOptions::default() };
        let options = TrainerOptions { parameters, state: StateOptions::Replicated(state), recompute, ..base };
        run(&format!("dp={ranks}"), &piped(options, "one_f_one_b", 1, 8 / ranks)).values
    };
    for recompute in [Recompute::Nothing, Recompute::Blocks] {
        let want = trained(1, Adding::AsTree, recompute);
        for ranks in [2, 4, 8] {
            assert!(trained(ranks, Adding::AsTree, recompute) == want, "{ranks} ranks, {recompute:?}");
        }
    }
    let want = trained(1, Adding::OneByOne, Recompute::Nothing);
    assert!(trained(4, Adding::OneByOne, Recompute::Nothing) != want, "the order doesn't show in these sums");
}
