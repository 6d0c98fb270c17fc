//! The text as samples: a token is a byte, a sample a stretch of them, and the last tenth is kept for validation.

use std::path::Path;

use candle_core::{Device, Tensor};
use paceline_parallel::Error;
use paceline_parallel::nn::Placement;
use paceline_parallel::tensor::CrossEntropyOptions;
use paceline_parallel::train::Batch;

/// How many tokens there are.
pub const VOCABULARY: usize = 256;

/// What this repository says of itself.
const SHIPPED: [&str; 16] = [
    include_str!("../../../README.md"),
    include_str!("../../../docs/architecture.md"),
    include_str!("../../../docs/schedules.md"),
    include_str!("../../../docs/adding-an-algorithm.md"),
    include_str!("../../../docs/adding-a-link.md"),
    include_str!("../../../docs/parallel.md"),
    include_str!("../../../docs/data-parallel.md"),
    include_str!("../../../docs/tensor-parallel.md"),
    include_str!("../../../docs/pipeline.md"),
    include_str!("../../../docs/checkpoints.md"),
    include_str!("../../../docs/environment.md"),
    include_str!("../../../docs/tuning.md"),
    include_str!("../../../docs/performance.md"),
    include_str!("../../../docs/side-by-side.md"),
    include_str!("../../../docs/costs.md"),
    include_str!("../../../docs/testing.md"),
];

/// A text cut into samples of some tokens, each with the one that follows.
pub struct Text {
    bytes: Vec<u8>,
    /// Where validation begins.
    split: usize,
    length: usize,
}

impl Text {
    /// A file, or what this repository says of itself.
    pub fn read(file: Option<&Path>, length: usize) -> Result<Text, String> {
        let bytes = match file {
            Some(file) => std::fs::read(file).map_err(|error| format!("--text {}: {error}", file.display()))?,
            None => SHIPPED.concat().into_bytes(),
        };
        let text = Text { split: bytes.len() / 10 * 9, bytes, length };
        if length == 0 || text.split <= length || text.bytes.len() - text.split <= length {
            let len = text.bytes.len();
            return Err(format!("--length {length}: a text of {len} bytes has no samples of that in its last tenth"));
        }
        Ok(text)
    }

    /// How many samples are trained on.
    pub fn samples(&self) -> u64 {
        ((self.split - 1) / self.length) as u64
    }

    /// How many are for validation.
    fn validation_samples(&self) -> u64 {
        ((self.bytes.len() - self.split - 1) / self.length) as u64
    }

    /// A number that another text hardly has: that of Fowler, Noll and Vo.
    pub fn fingerprint(&self) -> String {
        let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        format!("{} bytes, {:016x}", self.bytes.len(), self.bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix))
    }

    /// Samples as a micro-batch to train on.
    pub fn batch(&self, step: u64, samples: &[u64]) -> Result<Batch, Error> {
        let cut: Vec<&[u8]> = samples.iter().map(|sample| self.stretch(0, *sample)).collect();
        self.micro_batch(&cut, cut.len(), Placement::training(step, samples.iter().copied(), self.length))
    }

    /// The part of one of several ranks in validation, in micro-batches of so many samples. All ranks have equally many:
    /// what is missing in the end has no targets.
    pub fn validation(&self, rank: usize, ranks: usize, samples: usize) -> Result<Vec<Batch>, Error> {
        let all: Vec<&[u8]> = (0..self.validation_samples()).map(|sample| self.stretch(self.split, sample)).collect();
        let rounds = all.len().div_ceil(ranks * samples);
        let batch = |round: usize| {
            let first = (round * ranks + rank) * samples;
            let some = &all[first.min(all.len())..(first + samples).min(all.len())];
            self.micro_batch(some, samples, Placement::evaluation(samples, self.length))
        };
        (0..rounds).map(batch).collect()
    }

    /// A sample's tokens and the one after.
    fn stretch(&self, from: usize, sample: u64) -> &[u8] {
        let first = from + sample as usize * self.length;
        &self.bytes[first..=first + self.length]
    }

    fn micro_batch(&self, stretches: &[&[u8]], samples: usize, placement: Placement) -> Result<Batch, Error> {
        let shape = (samples, self.length);
        let tokens = stretches.iter().flat_map(|bytes| bytes[..self.length].iter().map(|byte| u32::from(*byte)));
        let targets = stretches.iter().flat_map(|bytes| bytes[1..].iter().map(|byte| i64::from(*byte)));
        let mut tokens: Vec<u32> = tokens.collect();
        let mut targets: Vec<i64> = targets.collect();
        tokens.resize(samples * self.length, 0);
        targets.resize(samples * self.length, CrossEntropyOptions::IGNORED);
        Ok(Batch {
            tokens: Tensor::from_vec(tokens, shape, &Device::Cpu)?,
            targets: Tensor::from_vec(targets, shape, &Device::Cpu)?,
            placement,
        })
    }
}
