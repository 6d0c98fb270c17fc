//! Saved in one layout, loaded in another, and trained on as if nothing had happened.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::channel;

use candle_core::DType;
use paceline_parallel::checkpoint::{
    Checkpoint, LoadOptions, LogicalHash, Progress, Saver, SaverOptions, logical_hash,
};
use paceline_parallel::mesh::{Axis, Mesh};
use paceline_parallel::optimizer::{AdamW, Optimizer, Ownership, Step};
use paceline_parallel::parameter::{Parameter, Part};
use paceline_parallel::precision::{LossScaler, LossScalerOptions, Overflow};
use paceline_parallel::samples::{Order, Sampler, Shuffle};
use paceline_parallel::state::State;

use super::files::{Asked, gate};
use crate::cut::{Cut, LAYOUTS, fill_gradients, model, on_ranks, set_gradients};

/// A run: what a training loop holds.
pub struct Run<'m> {
    pub mesh: &'m Mesh,
    pub state: Cut,
    pub ownership: Ownership,
    pub optimizer: Optimizer,
}

impl<'m> Run<'m> {
    pub fn new(mesh: &'m Mesh, dtype: DType, along: &[Axis]) -> Run<'m> {
        let state = Cut::new(mesh, model(mesh, dtype), along);
        let ownership = Ownership::agree(mesh, &state).unwrap();
        let optimizer = Optimizer::new(AdamW::default()).without_decay_of_vectors();
        Run { mesh, state, ownership, optimizer }
    }

    pub fn train(&mut self, steps: u64) {
        for _ in 0..steps {
            set_gradients(&self.state, self.optimizer.count().steps);
            let step = Step { learning_rate: 0.01, divisor: 4.0, clip_factor: 1.0 };
            self.optimizer.step(&self.state, &step).unwrap();
            self.state.publish().unwrap();
        }
    }

    pub fn hash(&self) -> LogicalHash {
        logical_hash(self.mesh, &self.ownership, &self.state).unwrap()
    }

    pub fn progress(&self) -> Progress {
        Progress { optimizer: self.optimizer.count().clone(), ..Progress::default() }
    }

    pub fn load(&mut self, directory: &Path) -> Progress {
        let moments = self.optimizer.moments().iter().map(|name| (*name).to_owned()).collect();
        let options = LoadOptions { moments, ..LoadOptions::default() };
        let checkpoint = Checkpoint::latest(directory).unwrap().unwrap();
        let progress = checkpoint.load(self.mesh, &self.ownership, &self.state, &options).unwrap();
        self.optimizer.restore(progress.optimizer.clone());
        progress
    }

    pub fn save(&self, saver: &mut Saver) {
        saver.save(&self.ownership, &self.state, &self.progress()).unwrap();
    }
}

/// Parameters' values by name and logical index: what a model computes with.
fn values(state: &Cut) -> BTreeMap<(String, u64), u64> {
    let mut found = BTreeMap::new();
    for parameter in state.parameters() {
        let value = parameter.value().unwrap().flatten_all().unwrap().to_dtype(DType::F64).unwrap();
        for (index, number) in parameter.part().indices().zip(value.to_vec1::<f64>().unwrap()) {
            match index {
                Some(index) => {
                    found.insert((parameter.name().to_owned(), index), number.to_bits());
                }
                None => assert_eq!(number, 0.0, "padding of {}", parameter.name()),
            }
        }
    }
    found
}

#[test]
fn any_layout_is_loaded_into_any_other_and_goes_on_bit_by_bit() {
    for dtype in [DType::F32, DType::F64] {
        let (saved, later, all) = on_ranks("", |mesh| {
            let mut run = Run::new(mesh, dtype, &[]);
            run.train(2);
            let saved = run.hash();
            run.train(3);
            (saved, run.hash(), values(&run.state))
        })
        .remove(0);
        for (from, from_along) in LAYOUTS {
            let directory = tempfile::tempdir().unwrap();
            on_ranks(from, |mesh| {
                let mut run = Run::new(mesh, dtype, from_along);
                run.train(2);
                let mut saver = Saver::new(mesh, directory.path(), SaverOptions::default()).unwrap();
                run.save(&mut saver);
                let done = saver.wait().unwrap().unwrap();
                assert_eq!(done.hash, saved, "{from}");
                assert_eq!(saver.wait().unwrap(), None);
            });
            let checkpoint = Checkpoint::latest(directory.path()).unwrap().unwrap();
            checkpoint.verify().unwrap();
            assert_eq!(
                (checkpoint.hash(), checkpoint.layout().to_string()),
                (saved, from.parse::<paceline_parallel::mesh::Layout>().unwrap().to_string())
            );
            for (to, to_along) in LAYOUTS {
                on_ranks(to, |mesh| {
                    let mut run = Run::new(mesh, dtype, to_along);
                    run.load(directory.path());
                    assert_eq!(run.hash(), saved, "{from} to {to}");
                    run.train(3);
                    assert_eq!(run.hash(), later, "{from} to {to}");
                    for (place, bits) in values(&run.state) {
                        assert_eq!(bits, all[&place], "{from} to {to}: {place:?}");
                    }
                });
            }
        }
    }
}

/// Each element is on disk once, however many ranks have it.
#[test]
fn copies_are_not_written_twice() {
    for layout in ["", "dp=3", "tp=4", "ep=4"] {
        let directory = tempfile::tempdir().unwrap();
        let bytes = on_ranks(layout, |mesh| {
            let mut run = Run::new(mesh, DType::F64, &[]);
            run.train(1);
            let mut saver = Saver::new(mesh, directory.path(), SaverOptions::default()).unwrap();
            run.save(&mut saver);
            let path = saver.wait().unwrap().unwrap().path;
            let file = std::fs::read(path.join(format!("rank-{:05}.safetensors", mesh.rank()))).unwrap();
            let tensors = safetensors::SafeTensors::deserialize(&file).unwrap();
            let tensors: Vec<_> = tensors.tensors().into_iter().map(|(_, tensor)| tensor.data().len()).collect();
            tensors.iter().sum::<usize>()
        });
        // Padding is written too: up to one row of 8 in 7 of the embedding, two columns of 8 in 6, three experts of 8 in 5.
        let (least, most) = (crate::cut::ELEMENTS * 24, crate::cut::ELEMENTS * 24 * 8 / 5);
        let all: usize = bytes.iter().sum();
        assert!((least..=most).contains(&all), "{layout}: {bytes:?}");
        assert!(layout != "dp=3" || (bytes[1..] == [0, 0] && all == least), "{bytes:?}");
    }
}

#[test]
fn everything_else_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    on_ranks("pp=2,tp=2", |mesh| {
        let run = Run::new(mesh, DType::F32, &[]);
        let mut scaler = LossScaler::new(LossScalerOptions::default()).unwrap();
        scaler.update(Some(Overflow { rank: 2 }));
        let mut sampler = Sampler::new(Order::new(100, 7, Shuffle::EachEpoch).unwrap(), 0);
        let _ = sampler.next_batch(30);
        let mut progress = Progress {
            schedule_step: 12,
            scaler: Some(scaler),
            sampler: Some(sampler),
            seed: 99,
            counters: BTreeMap::from([("dropout".to_owned(), u64::MAX)]),
            user: serde_json::json!({ "loss": [1.5, null], "name": "run" }),
            ..run.progress()
        };
        // Each stage knows which of its own parameters were left out.
        let pp = mesh.coordinate(Axis::Pp);
        progress.optimizer.missed.insert(format!("layers.{pp}.norm"), 3 + pp as u64);
        let mut saver = Saver::new(mesh, directory.path(), SaverOptions::default()).unwrap();
        saver.save(&run.ownership, &run.state, &progress).unwrap();
        saver.wait().unwrap();
        let checkpoint = Checkpoint::latest(directory.path()).unwrap().unwrap();
        let back = checkpoint.load(mesh, &run.ownership, &run.state, &LoadOptions::default()).unwrap();
        let missed = [("layers.0.norm".to_owned(), 3), ("layers.1.norm".to_owned(), 4)];
        assert_eq!(back.optimizer.missed, BTreeMap::from(missed));
        progress.optimizer.missed = back.optimizer.missed.clone();
        assert_eq!(back, progress);
    });
}

/// After a resume all stages know what each had missed; what one has missed since isn't lost to what another remembers.
#[test]
fn what_a_stage_has_missed_since_it_was_loaded_is_saved_too() {
    let directory = tempfile::tempdir().unwrap();
    on_ranks("pp=2", |mesh| {
        let run = Run::new(mesh, DType::F32, &[]);
        let mut saver = Saver::new(mesh, directory.path(), SaverOptions::default()).unwrap();
        let own = format!("layers.{}.norm", 2 * mesh.rank());
        let mut progress = run.progress();
        for saves in 1..4 {
            *progress.optimizer.missed.entry(own.clone()).or_default() += 1;
            saver.save(&run.ownership, &run.state, &progress).unwrap();
            saver.wait().unwrap();
            mesh.world().barrier().unwrap();
            let checkpoint = Checkpoint::latest(directory.path()).unwrap().unwrap();
            progress = checkpoint.load(mesh, &run.ownership, &run.state, &LoadOptions::default()).unwrap();
            let all = [("layers.0.norm".to_owned(), saves), ("layers.2.norm".to_owned(), saves)];
            assert_eq!(progress.optimizer.missed, BTreeMap::from(all));
            mesh.world().barrier().unwrap();
        }
    });
}

#[test]
fn what_changes_after_the_call_is_not_saved() {
    let directory = tempfile::tempdir().unwrap();
    on_ranks("dp=2", |mesh| {
        let mut run = Run::new(mesh, DType::F32, &[Axis::Dp]);
        run.train(1);
        let ((waits, waiting), (go_on, goes_on)) = (channel(), channel());
        let mut saver = Saver::new(mesh, directory.path(), Asked::options(gate(waits, goes_on))).unwrap();
        run.save(&mut saver);
        let saved = run.hash();
        waiting.recv().unwrap();
        assert!(Checkpoint::latest(directory.path()).unwrap().is_none());
        // The file isn't written yet, and collectives go on.
        run.train(2);
        assert_ne!(run.hash(), saved);
        go_on.send(()).unwrap();
        // The next save waits for this one.
        run.save(&mut saver);
        let first = Checkpoint::open(directory.path().join("checkpoint-0000000001")).unwrap();
        assert_eq!((first.hash(), first.progress().optimizer.steps), (saved, 1));
        let second = saver.wait().unwrap().unwrap();
        assert_eq!((second.hash, Checkpoint::open(&second.path).unwrap().progress().optimizer.steps), (run.hash(), 3));
        let mut fresh = Run::new(mesh, DType::F32, &[Axis::Dp]);
        let options = LoadOptions::default();
        first.load(mesh, &fresh.ownership, &fresh.state, &options).unwrap();
        assert_eq!(fresh.hash(), saved);
        fresh.load(directory.path());
        assert_eq!(fresh.hash(), run.hash());
    });
}

#[test]
fn a_plain_file_of_whole_tensors_goes_out_and_in() {
    let directory = tempfile::tempdir().unwrap();
    let plain = directory.path().join("model.safetensors");
    let all = on_ranks("tp=2,pp=2,fsdp=2", |mesh| {
        let mut run = Run::new(mesh, DType::F32, &[Axis::Fsdp]);
        run.train(2);
        let mut saver = Saver::new(mesh, directory.path(), SaverOptions::default()).unwrap();
        run.save(&mut saver);
        saver.wait().unwrap();
        values(&run.state)
    });
    Checkpoint::latest(directory.path()).unwrap().unwrap().export(&plain).unwrap();
    let all: BTreeMap<_, _> = all.into_iter().flatten().collect();
    let bytes = std::fs::read(&plain).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(tensors.tensor("embedding").unwrap().shape(), [7, 4]);
    let mut seen = 0;
    for (name, tensor) in tensors.tensors() {
        for (index, bytes) in tensor.data().chunks_exact(4).enumerate() {
            let number = f64::from(f32::from_le_bytes(bytes.try_into().unwrap()));
            assert_eq!(number.to_bits(), all[&(name.clone(), index as u64)], "{name} {index}");
            seen += 1;
        }
    }
    assert_eq!(seen, crate::cut::ELEMENTS);
    let options = LoadOptions::default();
    for (layout, along) in LAYOUTS {
        on_ranks(layout, |mesh| {
            let mut run = Run::new(mesh, DType::F32, along);
            run.train(1);
            paceline_parallel::checkpoint::import(&plain, mesh, &run.ownership, &run.state, &options).unwrap();
            values(&run.state).into_iter().for_each(|(place, bits)| assert_eq!(bits, all[&place], "{layout}"));
            run.state
                .visit(&mut |shard| {
                    assert!(shard.moments.is_empty());
                    Ok(())
                })
                .unwrap();
        });
    }
}

#[test]
fn other_floating_point_types_are_imported() {
    let directory = tempfile::tempdir().unwrap();
    let plain = directory.path().join("model.safetensors");
    let numbers: Vec<half::bf16> = (0..6).map(|number| half::bf16::from_f32(number as f32 / 4.0)).collect();
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::BF16, vec![6], &bytes).unwrap();
    safetensors::serialize_to_file([("small", view)], None, &plain).unwrap();
    on_ranks("fsdp=4", |mesh| {
        let value = candle_core::Tensor::zeros(6, DType::F64, &candle_core::Device::Cpu).unwrap();
        let small = Parameter::new("small", Part::all(&[6]), Default::default(), &value).unwrap();
        let state = Cut::new(mesh, vec![small.clone()], &[Axis::Fsdp]);
        let ownership = Ownership::agree(mesh, &state).unwrap();
        fill_gradients(&state, 1.0);
        paceline_parallel::checkpoint::import(&plain, mesh, &ownership, &state, &LoadOptions::default()).unwrap();
        assert_eq!(small.value().unwrap().to_vec1::<f64>().unwrap(), [0.0, 0.25, 0.5, 0.75, 1.0, 1.25]);
    });
    std::fs::write(&plain, &std::fs::read(&plain).unwrap()[..80]).unwrap();
    on_ranks("", |mesh| {
        let run = Run::new(mesh, DType::F64, &[]);
        let options = LoadOptions::default();
        let error = paceline_parallel::checkpoint::import(&plain, mesh, &run.ownership, &run.state, &options);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("cut short") && error.contains("model.safetensors"), "{error}");
    });
}
