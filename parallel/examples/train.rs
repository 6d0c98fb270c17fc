//! Trains a small GPT to repeat sequences, in the layout of the first argument:
//!
//! ```text
//! cargo run --release -p paceline-parallel --example train
//! cargo build --release -p paceline-tools -p paceline-parallel --examples --bins
//! target/release/paceline launch -n 4 -- target/release/examples/train dp=2,tp=2
//! target/release/paceline launch -n 4 -- target/release/examples/train pp=2,fsdp=2
//! ```

use candle_core::{Device, Tensor};
use paceline_comm::Communicator;
use paceline_parallel::mesh::{Axis, Layout, Mesh, MeshOptions};
use paceline_parallel::nn::{GptConfig, Placement};
use paceline_parallel::optimizer::{AdamW, Optimizer};
use paceline_parallel::random::Stream;
use paceline_parallel::sharded::ShardedOptions;
use paceline_parallel::train::{Batch, PipelineOptions, StateOptions, Trainer, TrainerOptions};

const VOCABULARY: u64 = 64;
const LENGTH: usize = 32;
const MICRO_BATCHES: u64 = 4;
const SAMPLES: u64 = 4;
const STEPS: u64 = 200;

/// A sequence whose second half repeats the first; only the second half counts.
fn sample(number: u64) -> (Vec<u32>, Vec<i64>) {
    let stream = Stream::new(1, "tokens").at(number);
    let token = |at: usize| stream.below((at % (LENGTH / 2)) as u64, VOCABULARY);
    let target = |at: usize| if at + 1 < LENGTH / 2 { -100 } else { token(at + 1) as i64 };
    ((0..LENGTH).map(|at| token(at) as u32).collect(), (0..LENGTH).map(target).collect())
}

fn batch(step: u64, first: u64) -> Result<Batch, candle_core::Error> {
    let samples: Vec<u64> = (first..first + SAMPLES).collect();
    let (tokens, targets): (Vec<_>, Vec<_>) = samples.iter().map(|number| sample(*number)).unzip();
    let shape = (samples.len(), LENGTH);
    Ok(Batch {
        tokens: Tensor::from_vec(tokens.concat(), shape, &Device::Cpu)?,
        targets: Tensor::from_vec(targets.concat(), shape, &Device::Cpu)?,
        placement: Placement::training(step, samples, LENGTH),
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let layout: Layout = std::env::args().nth(1).map_or_else(|| Ok(Layout::single()), |text| text.parse())?;
    let mesh = Mesh::new(Communicator::from_env()?, layout, MeshOptions::default())?;
    let data = [Axis::Dp, Axis::Fsdp];
    let (place, places) = (mesh.layout().place(mesh.rank(), &data) as u64, mesh.layout().size_of(&data) as u64);
    let is_first = mesh.rank() == 0;
    let mut options = TrainerOptions::new(GptConfig::new(VOCABULARY as usize, 64, 4, 4), 3e-3);
    options.pipeline = PipelineOptions { micro_batches: MICRO_BATCHES as u32, ..PipelineOptions::default() };
    if mesh.size(Axis::Fsdp) > 1 {
        options.state = StateOptions::Sharded(ShardedOptions::default());
    }
    let mut trainer = Trainer::new(mesh, options, Optimizer::new(AdamW::default()).without_decay_of_vectors())?;
    for step in 0..STEPS {
        let first = |micro_batch| ((step * places + place) * MICRO_BATCHES + micro_batch) * SAMPLES;
        let batches =
            (0..MICRO_BATCHES).map(|micro_batch| batch(step, first(micro_batch))).collect::<Result<_, _>>()?;
        let report = trainer.step(batches)?;
        if is_first && step % 20 == 0 {
            println!("step {step}: loss {:.4} over {} tokens, {:?}", report.loss, report.tokens, report.outcome);
        }
    }
    Ok(())
}
