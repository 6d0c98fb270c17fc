//! Training in every layout equals training in one process: losses, norms, and values after some steps.

mod many;
mod tables;

use std::collections::BTreeMap;
use std::sync::Mutex;

use candle_core::{DType, Device, Tensor};
use paceline_comm::Communicator;
use paceline_parallel::Result;
use paceline_parallel::checkpoint::logical_hash;
use paceline_parallel::mesh::{Axis, Layout, Mesh, MeshOptions};
use paceline_parallel::nn::{GptConfig, HeadKind, MlpKind, NormKind, Placement, PositionKind};
use paceline_parallel::optimizer::{AdamW, Clip, Norm, Optimizer, Outcome};
use paceline_parallel::parameter::{Parameter, ParameterOptions};
use paceline_parallel::random::Stream;
use paceline_parallel::sharded::{Reshard, ShardedOptions, Stage};
use paceline_parallel::train::{Batch, PipelineOptions, ScheduleOptions, StateOptions, Trainer, TrainerOptions};

const STEPS: u64 = 4;
const SAMPLES: u64 = 8;
const LENGTH: usize = 8;
const VOCABULARY: usize = 67;

pub fn llama() -> GptConfig {
    GptConfig { key_value_heads: 2, mlp_width: 24, init_std: 0.3, dropout: 0.1, ..GptConfig::new(VOCABULARY, 16, 4, 4) }
}

pub fn gpt2_tied() -> GptConfig {
    let positions = PositionKind::Learned { positions: LENGTH };
    let (mlp, norm, head) = (MlpKind::Gelu, NormKind::Layer, HeadKind::Tied);
    GptConfig { mlp, norm, positions, head, bias: true, ..llama() }
}

/// A sample's tokens, some of them without a target.
fn sample(number: u64) -> (Vec<u32>, Vec<i64>) {
    let stream = Stream::new(9, "tokens").at(number);
    let token = |at: usize| stream.below(at as u64, VOCABULARY as u64);
    let tokens = (0..LENGTH).map(|at| token(at) as u32).collect();
    let known = |at: usize| !token(at + 100).is_multiple_of(4);
    (tokens, (0..LENGTH).map(|at| if known(at) { token(at + 1) as i64 } else { -100 }).collect())
}

/// The micro-batches of one rank's data coordinate.
pub fn batches(step: u64, place: u64, places: u64, micro_batches: u64) -> Vec<Batch> {
    let own = SAMPLES / places;
    let each = own / micro_batches;
    let batch = |micro_batch: u64| {
        let first = place * own + micro_batch * each;
        let numbers: Vec<u64> = (first..first + each).map(|at| step * SAMPLES + at).collect();
        let (tokens, targets): (Vec<_>, Vec<_>) = numbers.iter().map(|number| sample(*number)).unzip();
        let shape = (each as usize, LENGTH);
        Batch {
            tokens: Tensor::from_vec(tokens.concat(), shape, &Device::Cpu).unwrap(),
            targets: Tensor::from_vec(targets.concat(), shape, &Device::Cpu).unwrap(),
            placement: Placement::training(step, numbers, LENGTH),
        }
    };
    (0..micro_batches).map(batch).collect()
}

/// Evaluated losses, losses and norms by step, and logical values at the end.
#[derive(Default, PartialEq, Debug)]
struct Found {
    evaluated: Vec<f64>,
    steps: Vec<(f64, f64)>,
    values: BTreeMap<String, Vec<f64>>,
}

pub fn options(model: GptConfig) -> TrainerOptions {
    TrainerOptions {
        parameters: ParameterOptions { seed: 11, dtype: DType::F64 },
        clip: Some(Clip { norm: Norm::L2, max: 0.5 }),
        ..TrainerOptions::new(model, 1e-2)
    }
}

fn optimizer() -> Optimizer {
    Optimizer::new(AdamW { epsilon: 1e-5, ..AdamW::default() }).without_decay_of_vectors()
}

/// One rank's training; its losses and norms, and what it has of the values at the end.
fn train(comm: Communicator, layout: &Layout, options: TrainerOptions, found: &Mutex<Found>) -> Result<()> {
    let micro_batches = u64::from(options.pipeline.micro_batches);
    let mesh = Mesh::new(comm, layout.clone(), MeshOptions::default())?;
    let (rank, data) = (mesh.rank(), [Axis::Dp, Axis::Fsdp]);
    let (place, places) = (layout.place(rank, &data) as u64, layout.size_of(&data) as u64);
    let mut trainer = Trainer::new(mesh, options, optimizer())?;
    let (mut steps, mut evaluated) = (Vec::new(), Vec::new());
    for step in 0..STEPS {
        // Of other samples than are trained on, in micro-batches of one: mostly more than the pipeline is planned for.
        let evaluation = trainer.evaluate(batches(1000, place, places, SAMPLES / places))?;
        evaluated.push(evaluation.loss);
        let report = trainer.step(batches(step, place, places, micro_batches))?;
        let Outcome::Updated { norm: Some(norm) } = report.outcome else { panic!("step {step}: {:?}", report.outcome) };
        steps.push((report.loss, norm));
    }
    let sent = trainer.state().sending().expect("both states count").started;
    assert!(sent > 0 || places == 1, "{layout}: no reduction or gather was started");
    // All ranks take part in bringing values, also those of which others have copies.
    let values: Vec<_> = trainer.parameters().map(|parameter| parameter.value()).collect::<Result<_>>()?;
    let mut found = found.lock().unwrap();
    assert!(found.steps.is_empty() || found.steps == steps, "ranks report different steps");
    assert!(found.evaluated.is_empty() || found.evaluated == evaluated, "ranks evaluate differently");
    (found.steps, found.evaluated) = (steps, evaluated);
    for (parameter, value) in trainer.parameters().zip(values) {
        let part = parameter.part();
        let whole = found.values.entry(parameter.name().to_owned());
        let whole = whole.or_insert_with(|| vec![f64::NAN; part.whole().iter().product()]);
        for (index, number) in part.indices().zip(value.flatten_all()?.to_dtype(DType::F64)?.to_vec1::<f64>()?) {
            let Some(index) = index else {
                assert_eq!(number, 0.0, "{}: padding has changed", parameter.name());
                continue;
            };
            let known = &mut whole[index as usize];
            assert!(
                known.is_nan() || *known == number,
                "{}: ranks differ at {index}: {known} {number}",
                parameter.name()
            );
            *known = number;
        }
    }
    Ok(())
}

fn run(layout: &str, options: &TrainerOptions) -> Found {
    let layout: Layout = layout.parse().unwrap();
    let found = Mutex::new(Found::default());
    std::thread::scope(|scope| {
        let ranks: Vec<_> = Communicator::in_process(layout.ranks())
            .unwrap()
            .into_iter()
            .map(|comm| {
                let (layout, found) = (&layout, &found);
                let thread = std::thread::Builder::new().stack_size(64 << 20);
                thread.spawn_scoped(scope, move || train(comm, layout, options.clone(), found)).unwrap()
            })
            .collect();
        ranks.into_iter().for_each(|rank| rank.join().unwrap().unwrap());
    });
    found.into_inner().unwrap()
}

fn near(one: f64, two: f64, tolerance: f64) -> bool {
    (one - two).abs() <= tolerance * (1.0 + one.abs())
}

/// Fails where a layout trains otherwise than one process.
fn check(layout: &str, options: &TrainerOptions, alone: &Found) {
    let found = run(layout, options);
    for (step, (want, is)) in alone.steps.iter().zip(&found.steps).enumerate() {
        let same = near(want.0, is.0, 1e-9) && near(want.1, is.1, 1e-9);
        assert!(same, "{layout}: step {step}: loss and norm are {is:?}, and {want:?} in one process");
    }
    for (step, (want, is)) in alone.evaluated.iter().zip(&found.evaluated).enumerate() {
        assert!(near(*want, *is, 1e-9), "{layout}: before step {step} {is} is evaluated, and {want} in one process");
    }
    assert_eq!(found.values.keys().collect::<Vec<_>>(), alone.values.keys().collect::<Vec<_>>(), "{layout}");
    for (name, want) in &alone.values {
        for (at, (want, is)) in want.iter().zip(&found.values[name]).enumerate() {
            assert!(near(*want, *is, 1e-8), "{layout}: {name}[{at}] is {is}, and {want} in one process");
        }
    }
}

fn piped(
    options: TrainerOptions,
    schedule: impl Into<ScheduleOptions>,
    chunks: u32,
    micro_batches: u32,
) -> TrainerOptions {
    let schedule = schedule.into();
    TrainerOptions { pipeline: PipelineOptions { schedule, chunks, micro_batches, partition: None }, ..options }
}

fn sharded(options: TrainerOptions, stage: Stage) -> TrainerOptions {
    let state = StateOptions::Sharded(ShardedOptions { stage, ..ShardedOptions::default() });
    TrainerOptions { state, ..options }
}

/// All layouts for a model, each against one process.
fn check_all(model: &GptConfig) {
    let base = options(model.clone());
    let alone = run("", &base);
    assert!(
        alone.steps.iter().all(|(loss, norm)| loss.is_finite() && *norm > 0.5),
        "nothing is clipped: {:?}",
        alone.steps
    );
    let sequence = TrainerOptions { sequence: true, ..base.clone() };
    for (layout, options) in [
        ("", piped(base.clone(), "one_f_one_b", 1, 4)),
        ("dp=4", base.clone()),
        ("dp=2,fsdp=2", base.clone()),
        ("tp=4", base.clone()),
        ("dp=2,tp=2", sequence.clone()),
        ("fsdp=4", sharded(base.clone(), Stage::Optimizer)),
        ("fsdp=2", sharded(base.clone(), Stage::Gradients)),
        ("dp=2,fsdp=2", sharded(base.clone(), Stage::Parameters)),
        ("fsdp=2,tp=2", sharded(sequence.clone(), Stage::Parameters)),
        ("pp=2,dp=2,tp=2", piped(base.clone(), "one_f_one_b", 1, 4)),
        ("dp=2,pp=4", piped(base.clone(), "zb_h1", 1, 4)),
        ("tp=2,dp=2,pp=2", piped(sequence.clone(), "interleaved", 2, 2)),
        ("pp=2,fsdp=2", piped(sharded(base.clone(), Stage::Optimizer), "zbv", 1, 4)),
        ("pp=2,dp=2,tp=2", piped(sequence.clone(), "dual_pipe_v", 1, 4)),
        ("pp=2,fsdp=2", piped(sharded(base.clone(), Stage::Gradients), "dual_pipe", 1, 4)),
        ("pp=2,fsdp=2", piped(sharded(base.clone(), Stage::Parameters), "one_f_one_b", 1, 4)),
    ] {
        check(layout, &options, &alone);
    }
}

#[test]
fn every_layout_of_llama_equals_one_process() {
    check_all(&llama());
}

#[test]
fn every_layout_of_a_tied_gpt2_equals_one_process() {
    check_all(&gpt2_tied());
}

#[test]
fn parameters_are_brought_again_in_the_backward_pass() {
    let kept = options(llama());
    let alone = run("", &kept);
    for reshard in [Reshard::AfterForward, Reshard::AfterBackward] {
        let sharded = ShardedOptions { stage: Stage::Parameters, reshard, ..ShardedOptions::default() };
        check("fsdp=2", &TrainerOptions { state: StateOptions::Sharded(sharded), ..kept.clone() }, &alone);
    }
}

#[test]
fn evaluation_drops_nothing_and_leaves_no_trace() {
    for (layout, options) in [
        ("", options(llama())),
        ("dp=2", options(llama())),
        ("fsdp=2", sharded(options(llama()), Stage::Gradients)),
        ("fsdp=2", sharded(options(llama()), Stage::Parameters)),
        ("pp=2", piped(options(gpt2_tied()), "zbv", 1, 2)),
    ] {
        let layout: Layout = layout.parse().unwrap();
        crate::common::ranks(layout.ranks(), |comm| {
            let mesh = Mesh::new(comm, layout.clone(), MeshOptions::default()).unwrap();
            let data = [Axis::Dp, Axis::Fsdp];
            let (place, places) = (layout.place(mesh.rank(), &data) as u64, layout.size_of(&data) as u64);
            let micro_batches = u64::from(options.pipeline.micro_batches);
            let mut trainer = Trainer::new(mesh, options.clone(), optimizer()).unwrap();
            trainer.step(batches(0, place, places, micro_batches)).unwrap();
            let hash = |trainer: &Trainer| logical_hash(trainer.mesh(), trainer.ownership(), trainer.state()).unwrap();
            let before = hash(&trainer);
            // Another step would drop other numbers.
            let losses = [100, 101].map(|step| {
                let mut batches = batches(100, place, places, 2);
                batches.iter_mut().for_each(|batch| batch.placement.step = step);
                trainer.evaluate(batches).unwrap()
            });
            assert_eq!((losses[0], hash(&trainer)), (losses[1], before), "{layout}");
            let given: u64 = trainer.parameters().map(Parameter::gradients_given).sum();
            // Where ranks may have different numbers of micro-batches they do: some follow what others send in the step.
            let uneven = if layout.size(Axis::Pp) > 1 { micro_batches } else { 1 + place };
            trainer.step(batches(1, place, places, uneven)).unwrap();
            assert!(trainer.parameters().map(Parameter::gradients_given).sum::<u64>() > given);
            let error = trainer.evaluate(Vec::new()).unwrap_err().to_string();
            assert!(error.contains("no rank has a token"), "{error}");
        });
    }
}

#[test]
fn ranks_evaluate_equally_many_micro_batches() {
    crate::common::ranks(2, |comm| {
        let mesh = Mesh::new(comm, "dp=2".parse().unwrap(), MeshOptions::default()).unwrap();
        let rank = mesh.rank() as u64;
        let trainer = Trainer::new(mesh, options(llama()), optimizer()).unwrap();
        let error = trainer.evaluate(batches(0, rank, 2, 1 + rank)).unwrap_err().to_string();
        assert!(error.contains("[1, 2] micro-batches"), "{error}");
    });
}

/// What rank 0 is told when a trainer is made.
fn refused(layout: &str, options: &TrainerOptions) -> String {
    let layout: Layout = layout.parse().unwrap();
    let errors = crate::common::ranks(layout.ranks(), |comm| {
        let mesh = Mesh::new(comm, layout.clone(), MeshOptions::default()).unwrap();
        Trainer::new(mesh, options.clone(), optimizer()).err().map(|error| error.to_string())
    });
    errors.into_iter().next().unwrap().unwrap_or_default()
}

#[test]
fn what_cannot_be_is_refused() {
    let base = options(llama());
    let error = refused("cp=2", &base);
    assert!(error.contains("along cp"), "{error}");
    let error = refused("pp=2", &piped(base.clone(), "fastest", 1, 4));
    assert!(error.contains("fastest"), "{error}");
    let error = refused("pp=2", &piped(base.clone(), "interleaved", 2, 3));
    assert!(error.contains("interleaved"), "{error}");
}
