//! What communication adds to a training step's time: DDP, ZeRO-3 and pipelines between two processes, against computing alone.
//!
//! The model is a chain of linear layers with rectifiers between, so that PyTorch's is the same. In each round every kind of
//! step runs once, after a barrier; a round's numbers are those of the slower rank. Tables hold medians over the rounds.

mod data;
mod model;
mod pipeline;
mod report;
mod samples;
mod torch;
mod verdict;

use clap::{Args, ValueEnum};
use paceline_comm::Communicator;

use crate::matrix::Wire;

pub use report::{Report, write_csv};
pub use samples::{Samples, columns};
pub use torch::Torch;
pub use verdict::{Verdict, verdicts};

/// How many processes there are.
pub const RANKS: usize = 2;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Case {
    /// DDP over a link on which communication alone takes half as long as the backward pass.
    DdpLink,
    /// DDP over shared memory.
    DdpShm,
    /// ZeRO-3 against DDP, over shared memory.
    Zero3,
    /// The same over the link.
    Zero3Link,
    /// Pipelines of two stages or more, over shared memory.
    Pipeline,
}

impl Case {
    /// Its name, as on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["ddp-link", "ddp-shm", "zero3", "zero3-link", "pipeline"][self as usize]
    }

    /// How its ranks reach each other.
    #[must_use]
    pub fn wire(self) -> Wire {
        match self {
            Case::DdpLink | Case::Zero3Link => Wire::Tcp,
            Case::DdpShm | Case::Zero3 | Case::Pipeline => Wire::Shm,
        }
    }

    fn has_zero3(self) -> bool {
        matches!(self, Case::Zero3 | Case::Zero3Link)
    }

    /// Whether PyTorch can run it, too.
    #[must_use]
    pub fn has_peer(self) -> bool {
        matches!(self, Case::DdpLink | Case::DdpShm)
    }
}

/// The sizes of what is measured.
#[derive(Args, Clone, PartialEq, Debug)]
pub struct Sizes {
    /// Layers of the model.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..))]
    pub layers: u32,
    /// Inputs and outputs of each layer.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub width: u32,
    /// Tokens on each rank in a step, or in a micro-batch of a pipeline.
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..))]
    pub tokens: u32,
    /// How many KiB of gradients make a full bucket, the first one, too.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub bucket_kib: u32,
    /// Micro-batches of a pipeline.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub micro_batches: u32,
    /// The pipeline's schedule: a row of the table.
    #[arg(long, default_value = "one_f_one_b")]
    pub schedule: String,
    /// How many rounds are measured at a time.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Binds the thread of each rank that computes to a core.
    #[arg(long)]
    pub bind: bool,
}

impl Sizes {
    /// What a worker is told.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let Sizes { layers, width, tokens, bucket_kib, micro_batches, schedule, rounds, bind } = self;
        let numbers = [
            ("layers", layers),
            ("width", width),
            ("tokens", tokens),
            ("bucket-kib", bucket_kib),
            ("micro-batches", micro_batches),
            ("rounds", rounds),
        ];
        let mut words: Vec<String> = numbers.iter().map(|(name, number)| format!("--{name}={number}")).collect();
        words.push(format!("--schedule={schedule}"));
        words.extend(bind.then(|| "--bind".to_owned()));
        words
    }

    /// Numbers in the model.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        let width = u64::from(self.width);
        u64::from(self.layers) * (width + 1) * width
    }

    /// Bytes of its gradients.
    #[must_use]
    pub fn gradient_bytes(&self) -> u64 {
        self.parameters() * size_of::<f32>() as u64
    }

    fn bucket_bytes(&self) -> usize {
        self.bucket_kib as usize * 1024
    }
}

/// Runs a case as one rank of the environment's communicator; rank 0 prints each round's numbers, as `time` and a number.
///
/// # Errors
///
/// If the ranks don't meet, a step fails, or states that should be equal aren't.
pub fn worker(case: Case, sizes: &Sizes) -> Result<(), String> {
    // No rank outlives the program that started it.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let comm = Communicator::from_env().map_err(|error| error.to_string())?;
    let rank = comm.rank();
    let ended = match case {
        Case::Pipeline => pipeline::measure(comm, sizes),
        _ => data::measure(comm, sizes, case.has_zero3()),
    };
    ended.map_err(|error| format!("rank {rank}: {}: {error}", case.name()))
}

/// Binds the calling thread to a core of its own, as far as this process has several.
fn bind(rank: usize) -> Result<(), String> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let told = |error: rustix::io::Errno| format!("binding the thread to a core: {error}");
    let allowed = sched_getaffinity(None).map_err(told)?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    let mut one = CpuSet::new();
    one.set(cores[rank % cores.len()]);
    sched_setaffinity(None, &one).map_err(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        sizes: Sizes,
    }

    #[test]
    fn workers_are_told_the_same_sizes() {
        let words = ["", "--layers=3", "--width=5", "--tokens=7", "--bucket-kib=9", "--rounds=2", "--bind"];
        let sizes = Program::parse_from(words).sizes;
        let again = Program::parse_from(std::iter::once(String::new()).chain(sizes.words())).sizes;
        assert_eq!(sizes, again);
        assert_eq!((sizes.parameters(), sizes.bucket_bytes()), (3 * 6 * 5, 9216));
    }
}
