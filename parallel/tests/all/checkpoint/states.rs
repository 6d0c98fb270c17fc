//! The states that training uses, saved and loaded by each other.

use std::path::Path;

use candle_core::DType;
use paceline_parallel::checkpoint::{
    Checkpoint, LoadOptions, LogicalHash, Progress, Saver, SaverOptions, logical_hash,
};
use paceline_parallel::data::{Replicated, ReplicatedOptions};
use paceline_parallel::mesh::Mesh;
use paceline_parallel::optimizer::{AdamW, Optimizer, Ownership, Step};
use paceline_parallel::sharded::{Offload, Sharded, ShardedOptions, Stage, layer_of, units_by};
use paceline_parallel::state::{Local, State};

use crate::cut::{model, on_ranks, set_gradients};

type Makes = fn(&Mesh, &Path) -> Box<dyn State>;

fn sharded(mesh: &Mesh, options: ShardedOptions) -> Box<dyn State> {
    Box::new(Sharded::new(units_by(&model(mesh, DType::F32), layer_of), mesh, options).unwrap())
}

const STATES: [(&str, Makes); 7] = [
    ("", |mesh, _| Box::new(Local::new(model(mesh, DType::F32)).unwrap())),
    ("dp=2,tp=2", |mesh, _| {
        let options = ReplicatedOptions { bucket_bytes: 64, first_bucket_bytes: 8, ..ReplicatedOptions::default() };
        Box::new(Replicated::new(model(mesh, DType::F32), mesh, options).unwrap())
    }),
    ("fsdp=4", |mesh, _| sharded(mesh, ShardedOptions { stage: Stage::Optimizer, ..ShardedOptions::default() })),
    ("fsdp=3", |mesh, _| sharded(mesh, ShardedOptions { stage: Stage::Gradients, ..ShardedOptions::default() })),
    ("dp=2,fsdp=2,tp=2", |mesh, _| sharded(mesh, ShardedOptions::default())),
    ("fsdp=2,tp=4", |mesh, _| sharded(mesh, ShardedOptions::default())),
    ("fsdp=2,tp=2", |mesh, files| {
        sharded(mesh, ShardedOptions { offload: Offload::Files(files.to_owned()), ..ShardedOptions::default() })
    }),
];

fn train(state: &dyn State, optimizer: &mut Optimizer, steps: u64) {
    for _ in 0..steps {
        // No micro-batch was computed: gradients come from nowhere, once there is room for them.
        state.last_micro_batch();
        state.finish_gradients().unwrap();
        set_gradients(state, optimizer.count().steps);
        optimizer.step(state, &Step { learning_rate: 0.01, divisor: 4.0, clip_factor: 1.0 }).unwrap();
        state.publish().unwrap();
    }
}

#[test]
fn states_of_all_kinds_are_loaded_by_each_other() {
    let files = tempfile::tempdir().unwrap();
    let optimizer = || Optimizer::new(AdamW::default()).without_decay_of_vectors();
    let mut hashes: Vec<[LogicalHash; 2]> = Vec::new();
    for (from, makes) in STATES {
        let directory = tempfile::tempdir().unwrap();
        let mut saved = on_ranks(from, |mesh| {
            let (state, mut optimizer) = (makes(mesh, files.path()), optimizer());
            let ownership = Ownership::agree(mesh, &*state).unwrap();
            train(&*state, &mut optimizer, 2);
            let mut saver = Saver::new(mesh, directory.path(), SaverOptions::default()).unwrap();
            let progress = Progress { optimizer: optimizer.count().clone(), ..Progress::default() };
            saver.save(&ownership, &*state, &progress).unwrap();
            train(&*state, &mut optimizer, 2);
            let saved = saver.wait().unwrap().unwrap().hash;
            [saved, logical_hash(mesh, &ownership, &*state).unwrap()]
        });
        hashes.append(&mut saved);
        for (to, makes) in STATES {
            let loaded = on_ranks(to, |mesh| {
                let (state, mut optimizer) = (makes(mesh, files.path()), optimizer());
                let ownership = Ownership::agree(mesh, &*state).unwrap();
                train(&*state, &mut optimizer, 1);
                let checkpoint = Checkpoint::latest(directory.path()).unwrap().unwrap();
                let progress = checkpoint.load(mesh, &ownership, &*state, &LoadOptions::default()).unwrap();
                optimizer.restore(progress.optimizer);
                train(&*state, &mut optimizer, 2);
                logical_hash(mesh, &ownership, &*state).unwrap()
            });
            assert!(loaded.iter().all(|hash| *hash == hashes[0][1]), "{from} to {to}");
        }
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{from}");
    }
}
