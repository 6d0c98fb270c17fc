//! A trainer that is stopped, saved, and goes on in another layout trains as one that was not.

use candle_core::{DType, Device, Tensor};
use paceline_parallel::checkpoint::{Checkpoint, Saver, SaverOptions};
use paceline_parallel::mesh::{Axis, Layout, Mesh, MeshOptions};
use paceline_parallel::nn::{GptConfig, HeadKind, MlpKind, NormKind, Placement, PositionKind};
use paceline_parallel::optimizer::{AdamW, Optimizer, Outcome, Schedule};
use paceline_parallel::parameter::ParameterOptions;
use paceline_parallel::precision::LossScalerOptions;
use paceline_parallel::samples::{Order, Sampler, Shuffle};
use paceline_parallel::sharded::{ShardedOptions, Stage};
use paceline_parallel::train::{Batch, PipelineOptions, StateOptions, Trainer, TrainerOptions};

use crate::common::{ranks, tokens};

const LENGTH: usize = 6;
const BATCH: u64 = 8;
const MICRO_BATCHES: u64 = 2;
const SAVED_AFTER: u64 = 3;
const STEPS: u64 = 6;

/// A model whose embedding is its head as well: with several stages, two ranks have it.
fn options(layout: &Layout, schedule: &str, dtype: DType) -> TrainerOptions {
    let positions = PositionKind::Learned { positions: LENGTH };
    let model = GptConfig {
        head: HeadKind::Tied,
        mlp: MlpKind::Gelu,
        norm: NormKind::Layer,
        positions,
        bias: true,
        dropout: 0.1,
        init_std: 0.3,
        mlp_width: 16,
        ..GptConfig::new(31, 8, 4, 2)
    };
    let sharded = StateOptions::Sharded(ShardedOptions { stage: Stage::Parameters, ..ShardedOptions::default() });
    let base = TrainerOptions::new(model, 0.0);
    TrainerOptions {
        parameters: ParameterOptions { seed: 3, dtype },
        pipeline: PipelineOptions {
            schedule: schedule.into(),
            micro_batches: MICRO_BATCHES as u32,
            ..PipelineOptions::default()
        },
        state: if layout.size(Axis::Fsdp) > 1 { sharded } else { base.state.clone() },
        learning_rate: Schedule::cosine(1e-2, 1e-3, 2, STEPS),
        scaler: (dtype == DType::F16).then(|| LossScalerOptions {
            initial: 1024.0,
            interval: 2,
            ..LossScalerOptions::default()
        }),
        ..base
    }
}

/// Trains up to a step, from a checkpoint if `from` names a directory, and saves if `to` does: losses and norms by step.
fn train(
    layout: &str,
    schedule: &str,
    dtype: DType,
    [from, to]: [Option<&std::path::Path>; 2],
    until: u64,
) -> Vec<(f64, f64)> {
    let layout: Layout = layout.parse().unwrap();
    let options = options(&layout, schedule, dtype);
    let found = ranks(layout.ranks(), |comm| {
        let mesh = Mesh::new(comm, layout.clone(), MeshOptions::default()).unwrap();
        let data = [Axis::Dp, Axis::Fsdp];
        let (place, places) = (layout.place(mesh.rank(), &data), layout.size_of(&data));
        let optimizer = Optimizer::new(AdamW { epsilon: 1e-5, ..AdamW::default() }).without_decay_of_vectors();
        let mut trainer = Trainer::new(mesh, options.clone(), optimizer).unwrap();
        let mut sampler = Sampler::new(Order::new(20, 1, Shuffle::EachEpoch).unwrap(), 0);
        if let Some(from) = from {
            let progress = trainer.load(&Checkpoint::latest(from).unwrap().unwrap()).unwrap();
            assert_eq!(progress.schedule_step, SAVED_AFTER);
            sampler = progress.sampler.unwrap();
        }
        let mut steps = Vec::new();
        while trainer.steps() < until {
            let step = sampler.position() / BATCH;
            let each = BATCH as usize / places / MICRO_BATCHES as usize;
            let micro_batches = sampler.next_batch(BATCH).micro_batches(place, places, each).unwrap();
            let report = trainer.step(micro_batches.iter().map(|samples| batch(step, samples)).collect()).unwrap();
            let Outcome::Updated { norm: Some(norm) } = report.outcome else { panic!("{:?}", report.outcome) };
            steps.push((report.loss, norm));
        }
        if let Some(to) = to {
            let mut saver = Saver::new(trainer.mesh(), to, SaverOptions::default()).unwrap();
            let progress = paceline_parallel::checkpoint::Progress { sampler: Some(sampler), ..trainer.progress() };
            saver.save(trainer.ownership(), trainer.state(), &progress).unwrap();
            saver.wait().unwrap();
        }
        (steps, trainer.scaler().map(|scaler| scaler.scale()))
    });
    assert!(found.iter().all(|other| *other == found[0]), "ranks report different steps");
    let (steps, scale) = &found[0];
    // Raised after every second step, so a scale that began anew would be lower.
    assert_eq!(*scale, (dtype == DType::F16).then(|| 1024.0 * 2f64.powi(until as i32 / 2)));
    steps.clone()
}

fn batch(step: u64, samples: &[u64]) -> Batch {
    let one = |sample: &u64| tokens(*sample..*sample + 1, LENGTH, 31);
    let (tokens, targets): (Vec<Tensor>, Vec<Tensor>) = samples.iter().map(one).unzip();
    Batch {
        tokens: Tensor::cat(&tokens, 0).unwrap().to_dtype(DType::U32).unwrap().to_device(&Device::Cpu).unwrap(),
        targets: Tensor::cat(&targets, 0).unwrap(),
        placement: Placement::training(step, samples.iter().copied(), LENGTH),
    }
}

#[test]
fn a_trainer_goes_on_in_another_layout_as_if_it_had_not_stopped() {
    let uninterrupted = train("", "one_f_one_b", DType::F64, [None, None], STEPS);
    let layouts = [("", "one_f_one_b"), ("pp=2", "one_f_one_b"), ("pp=2,fsdp=2", "zbv"), ("dp=2,tp=2", "one_f_one_b")];
    for (from, schedule) in layouts {
        let directory = tempfile::tempdir().unwrap();
        let first = train(from, schedule, DType::F64, [None, Some(directory.path())], SAVED_AFTER);
        for (to, schedule) in layouts {
            let rest = train(to, schedule, DType::F64, [Some(directory.path()), None], STEPS);
            let all: Vec<_> = first.iter().chain(&rest).copied().collect();
            assert_eq!(all.len(), uninterrupted.len());
            for (step, (is, want)) in all.iter().zip(&uninterrupted).enumerate() {
                let near = |is: f64, want: f64| (is - want).abs() <= 1e-9 * (1.0 + want.abs());
                let same = near(is.0, want.0) && near(is.1, want.1);
                assert!(same, "{from} to {to}: step {step}: loss and norm are {is:?}, and {want:?} without a stop");
            }
            if from == to {
                let without = train(from, schedule, DType::F64, [None, None], STEPS);
                assert_eq!(all, without, "{from}: the same layout gives the same bits");
            }
        }
    }
}

#[test]
fn the_scale_of_the_loss_goes_on_too() {
    let directory = tempfile::tempdir().unwrap();
    let without = train("pp=2", "one_f_one_b", DType::F16, [None, None], STEPS);
    let mut all = train("pp=2", "one_f_one_b", DType::F16, [None, Some(directory.path())], SAVED_AFTER);
    all.extend(train("pp=2", "one_f_one_b", DType::F16, [Some(directory.path()), None], STEPS));
    assert_eq!(all, without);
}
