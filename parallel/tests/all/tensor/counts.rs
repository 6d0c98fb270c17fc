//! Which collectives a pass makes, and of how many bytes.

use paceline_comm::Collective::{self, AllGather, AllReduce, ReduceScatter};
use paceline_parallel::nn::{GptConfig, Recompute};
use paceline_parallel::tensor::TensorParallel;

use super::model::{BATCH, LEN, Layout, Model, gpt2, layout, llama};
use crate::common::ranks;

/// Of [batch, positions, width] or [batch, positions], in f64.
fn bytes(config: &GptConfig) -> (u64, u64) {
    let tokens = BATCH * LEN as u64 * 8;
    (tokens * config.width as u64, tokens)
}

#[track_caller]
fn holds(tp: &TensorParallel, what: &str, wants: &[(Collective, u64, u64)]) {
    for (collective, calls, bytes) in wants {
        let entry = tp.group.traffic().of(*collective);
        assert_eq!((entry.calls, entry.payload_bytes), (*calls, *bytes), "{what}: {collective}");
    }
    let all = tp.group.traffic().total();
    assert_eq!(all.calls, wants.iter().map(|(_, calls, _)| calls).sum::<u64>(), "{what}");
    tp.group.traffic().reset();
}

/// A layer has 2 forward and 2 back; the embedding and the head have 1 each, and the loss has 3 small ones.
#[test]
fn two_and_two_per_layer() {
    for config in [llama(), gpt2()] {
        for size in [2, 4] {
            ranks(size, |comm| {
                let model = Model::new(&config, layout(size, false), comm);
                let ((activation, numbers), layers) = (bytes(&config), config.layers as u64);
                let forward = 2 * layers + 1;
                let (loss, _) = model.loss(0).unwrap();
                holds(&model.tp, "forward", &[(AllReduce, forward + 3, forward * activation + 3 * numbers)]);
                loss.backward().unwrap();
                let back = 2 * layers + 1;
                holds(&model.tp, "back", &[(AllReduce, back, back * activation)]);
            });
        }
    }
}

/// Each all_reduce becomes a reduce_scatter and an all_gather. The inputs of the layers cut along columns, which aren't kept,
/// are gathered once more.
#[test]
fn with_the_sequence_cut() {
    for size in [2, 4] {
        ranks(size, |comm| {
            let config = llama();
            let model = Model::new(&config, layout(size, true), comm);
            let ((activation, numbers), layers) = (bytes(&config), config.layers as u64);
            let each = 2 * layers + 1;
            let (loss, _) = model.loss(0).unwrap();
            let small = (AllReduce, 3, 3 * numbers);
            let both = [(ReduceScatter, each, each * activation), (AllGather, each, each * activation)];
            holds(&model.tp, "forward", &[both[0], both[1], small]);
            loss.backward().unwrap();
            holds(&model.tp, "back", &[both[0], (AllGather, 2 * each, 2 * each * activation)]);
        });
    }
}

/// Whole blocks are computed again with their collectives, attention alone has none.
#[test]
fn with_segments_computed_again() {
    for (recompute, again) in [(Recompute::Attention, 0), (Recompute::Blocks, 2)] {
        ranks(2, |comm| {
            let config = llama();
            let model = Model::new(&config, Layout { recompute, ..layout(2, false) }, comm);
            let ((activation, numbers), layers) = (bytes(&config), config.layers as u64);
            let (loss, _) = model.loss(0).unwrap();
            let forward = 2 * layers + 1;
            holds(&model.tp, "forward", &[(AllReduce, forward + 3, forward * activation + 3 * numbers)]);
            loss.backward().unwrap();
            let back = (2 + again) * layers + 1;
            holds(&model.tp, "back", &[(AllReduce, back, back * activation)]);
        });
    }
}

/// One rank sends nothing.
#[test]
fn alone() {
    ranks(1, |comm| {
        let model = Model::new(&gpt2(), layout(1, true), comm);
        model.step(false).unwrap();
        holds(&model.tp, "a step", &[]);
    });
}
