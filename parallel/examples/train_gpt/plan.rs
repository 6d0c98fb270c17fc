//! What follows from the options: a layout, a model, a text; or what is wrong with them, before anything has started.

use std::path::Path;

use candle_core::DType;
use paceline_parallel::Error;
use paceline_parallel::checkpoint::Checkpoint;
use paceline_parallel::mesh::{Axis, Layout};
use paceline_parallel::nn::{self, GptConfig};
use paceline_parallel::optimizer::{AdamW, Clip, Norm, Optimizer, Schedule};
use paceline_parallel::parameter::ParameterOptions;
use paceline_parallel::pipeline;
use paceline_parallel::pipeline::partition::{Partition, PartitionError};
use paceline_parallel::precision::LossScalerOptions;
use paceline_parallel::sharded::{ShardedOptions, Stage};
use paceline_parallel::train::{PipelineOptions, ScheduleOptions, StateOptions, TrainerOptions};

use crate::options::{Options, Precision, Recompute};
use crate::text::{Text, VOCABULARY};

/// What follows from the options.
pub struct Plan {
    pub layout: Layout,
    pub trainer: TrainerOptions,
    pub text: Text,
    /// Samples in a micro-batch.
    pub samples: usize,
    /// The checkpoint to go on from.
    pub resume: Option<Checkpoint>,
}

impl Plan {
    /// What follows from the options, or why nothing can.
    pub fn new(options: &Options) -> Result<Plan, String> {
        let layout = layout(options)?;
        let pipeline = pipeline(options)?;
        model_can_be_cut(options)?;
        numbers_make_sense(options)?;
        let parts = options.dp * options.fsdp * pipeline.micro_batches as usize;
        if options.batch == 0 || !options.batch.is_multiple_of(parts) {
            let (batch, micro_batches) = (options.batch, pipeline.micro_batches);
            return Err(format!(
                "--batch {batch} can't be cut into {parts} equal micro-batches: --dp {} times --fsdp {} ranks take \
                 {micro_batches} each (--micro-batches)",
                options.dp, options.fsdp
            ));
        }
        let text = Text::read(options.text.as_deref(), options.length)?;
        let resume = resume(options)?;
        for file in &options.compare {
            crate::curve::read(file).map_err(|error| format!("--compare {}: {error}", file.display()))?;
        }
        let samples = options.batch / parts;
        Ok(Plan { layout, trainer: trainer(options, pipeline), text, samples, resume })
    }
}

/// The optimizer.
pub fn optimizer(options: &Options) -> Optimizer {
    let weight_decay = options.weight_decay;
    Optimizer::new(AdamW { beta2: 0.95, weight_decay, ..AdamW::default() }).without_decay_of_vectors()
}

fn layout(options: &Options) -> Result<Layout, String> {
    let Options { dp, fsdp, tp, pp, .. } = *options;
    let axes = [(Axis::Pp, pp), (Axis::Dp, dp), (Axis::Fsdp, fsdp), (Axis::Tp, tp)];
    if let Some((axis, _)) = axes.iter().find(|(_, size)| *size == 0) {
        return Err(format!("--{axis} 0: the least is 1"));
    }
    let longer: Vec<_> = axes.into_iter().filter(|(_, size)| *size > 1).collect();
    let layout = Layout::new(&longer).map_err(|error| error.to_string())?;
    let made = layout.ranks();
    match options.ranks {
        Some(ranks) if ranks != made => {
            return Err(format!(
                "--ranks {ranks}: --dp {dp} times --fsdp {fsdp} times --tp {tp} times --pp {pp} is {made}"
            ));
        }
        _ => {}
    }
    if let (Some(stage), 1) = (options.zero, fsdp) {
        let instead = if dp > 1 { format!(": --fsdp {dp} instead of --dp {dp}, say") } else { String::new() };
        return Err(format!("--zero {stage} cuts the state among the ranks along --fsdp, and there is 1{instead}"));
    }
    if options.sequence_parallel && tp == 1 {
        return Err("--sequence-parallel cuts sequences among the ranks along --tp, and there is 1".to_owned());
    }
    Ok(layout)
}

fn pipeline(options: &Options) -> Result<PipelineOptions, String> {
    let ranks = u32::try_from(options.pp).map_err(|_| format!("--pp {}: too many", options.pp))?;
    let layers = u32::try_from(options.layers).map_err(|_| format!("--layers {}: too many", options.layers))?;
    let usual = if ranks > 1 { 2 * ranks } else { 1 };
    let (schedule, planned): (ScheduleOptions, u32) = match &options.schedule_file {
        None => (options.schedule.as_str().into(), usual),
        Some(file) => {
            let table = table(file).map_err(|why| format!("--schedule-file {}: {why}", file.display()))?;
            let planned = table.n_micro_batches;
            (table.into(), planned)
        }
    };
    let drawn = |text: &String| Partition::drawn(text).map_err(|error| format!("--stages {text}: {error}"));
    let pipeline = PipelineOptions {
        schedule,
        chunks: options.chunks,
        micro_batches: options.micro_batches.unwrap_or(planned),
        partition: options.stages.as_ref().map(drawn).transpose()?,
    };
    pipeline.plan(ranks, options.layers).map_err(|error| match error {
        Error::Partition(PartitionError::TooFew { n_stages, .. }) => format!(
            "--layers {layers}: the schedule on {ranks} ranks (--pp) has {n_stages} stages, and each must have a layer, \
             unless --stages says otherwise"
        ),
        Error::Schedule(wrong) => {
            let file = options.schedule_file.as_deref().unwrap_or(Path::new("")).display();
            format!("--schedule-file {file}: {wrong}")
        }
        other => other.to_string(),
    })?;
    Ok(pipeline)
}

fn table(file: &Path) -> Result<pipeline::Schedule, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    pipeline::text::parse(&text).map_err(|error| error.to_string())
}

fn model_can_be_cut(options: &Options) -> Result<(), String> {
    let Options { width, heads, tp, length, .. } = *options;
    let kv_heads = options.kv_heads.unwrap_or(heads);
    let divides = |part: usize, whole: usize| part > 0 && whole.is_multiple_of(part);
    if !divides(2 * heads, width) {
        return Err(format!("--width {width} can't be cut into --heads {heads} of an even number each"));
    }
    if !divides(kv_heads, heads) {
        return Err(format!("--heads {heads} can't be shared out among --kv-heads {kv_heads}"));
    }
    if !divides(tp, heads) || !(divides(tp, kv_heads) || divides(kv_heads, tp)) {
        return Err(format!("--heads {heads} and --kv-heads {kv_heads} can't be cut among --tp {tp} ranks"));
    }
    if options.sequence_parallel && !divides(tp, length) {
        return Err(format!("--length {length} can't be cut into {tp} equal parts (--sequence-parallel)"));
    }
    Ok(())
}

fn numbers_make_sense(options: &Options) -> Result<(), String> {
    let least = |name: &str, number: f64, least: f64| match number.is_finite() && number >= least {
        true => Ok(()),
        false => Err(format!("--{name} {number}: the least is {least}")),
    };
    least("steps", options.steps as f64, 1.0)?;
    least("every", options.every as f64, 1.0)?;
    least("learning-rate", options.learning_rate, 0.0)?;
    least("weight-decay", options.weight_decay, 0.0)?;
    least("clip", options.clip, 0.0)?;
    least("dropout", options.dropout, 0.0)?;
    if options.dropout >= 1.0 {
        return Err(format!("--dropout {}: it must be below 1", options.dropout));
    }
    if options.warm_up > options.steps {
        return Err(format!("--warm-up {}: there are {} steps", options.warm_up, options.steps));
    }
    match options.peak_flops {
        Some(peak) if !(peak.is_finite() && peak > 0.0) => Err(format!("--peak-flops {peak}: it must be above 0")),
        _ => Ok(()),
    }
}

/// The checkpoint to go on from. One that is there but not wanted is an error: it would be taken for one of this run.
fn resume(options: &Options) -> Result<Option<Checkpoint>, String> {
    let Some(directory) = &options.checkpoint else {
        return if options.resume { Err("--resume needs --checkpoint".to_owned()) } else { Ok(None) };
    };
    let place = directory.display();
    match (Checkpoint::latest(directory).map_err(|error| error.to_string())?, options.resume) {
        (None, true) => Err(format!("--resume: there is no checkpoint in {place}")),
        (Some(_), false) => {
            Err(format!("{place} has checkpoints: go on from them (--resume), or name another directory"))
        }
        (found, _) => Ok(found),
    }
}

fn trainer(options: &Options, pipeline: PipelineOptions) -> TrainerOptions {
    let (precision, learning_rate) = (options.precision, options.learning_rate);
    let mut model = GptConfig::new(VOCABULARY, options.width, options.layers, options.heads);
    model.key_value_heads = options.kv_heads.unwrap_or(options.heads);
    model.dropout = options.dropout;
    let dtype = match precision {
        Precision::F64 => DType::F64,
        Precision::F32 => DType::F32,
        Precision::Bf16 => DType::BF16,
        Precision::F16 => DType::F16,
    };
    let base = TrainerOptions::new(model, learning_rate);
    let sharded = |stage| StateOptions::Sharded(ShardedOptions { stage, ..ShardedOptions::default() });
    TrainerOptions {
        parameters: ParameterOptions { seed: options.seed, dtype },
        sequence: options.sequence_parallel,
        recompute: match options.recompute {
            Recompute::Nothing => nn::Recompute::Nothing,
            Recompute::Attention => nn::Recompute::Attention,
            Recompute::Blocks => nn::Recompute::Blocks,
        },
        pipeline,
        state: match (options.fsdp, options.zero) {
            (1, _) => base.state,
            (_, Some(1)) => sharded(Stage::Optimizer),
            (_, Some(2)) => sharded(Stage::Gradients),
            _ => sharded(Stage::Parameters),
        },
        learning_rate: Schedule::cosine(learning_rate, learning_rate / 10.0, options.warm_up, options.steps),
        // Without a limit the norm is still reported.
        clip: Some(Clip { norm: Norm::L2, max: if options.clip == 0.0 { f64::INFINITY } else { options.clip } }),
        scaler: (precision == Precision::F16).then(LossScalerOptions::default),
        ..base
    }
}
