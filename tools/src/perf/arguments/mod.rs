//! The command line of a `*_perf` tool: nccl-tests' flags, checked before anything starts.

mod check;
mod flags;
mod values;

use std::path::PathBuf;
use std::time::Duration;

pub use values::size;

use super::failure::Failure;
use super::names::{Operator, TypeName};

/// What one run measures and how.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Threads per process (`-t`).
    pub threads: usize,
    /// Ranks per thread (`-g`). Each rank gets a thread of its own.
    pub ranks_per_thread: usize,
    /// The first size, in bytes (`-b`).
    pub min_bytes: u64,
    /// The last size, in bytes (`-e`).
    pub max_bytes: u64,
    /// From one size to the next (`-f`, `-i`).
    pub step: Step,
    /// Timed iterations per size (`-n`).
    pub iterations: usize,
    /// Operations per iteration (`-m`).
    pub aggregated: usize,
    /// Warm-up operations per size (`-w`).
    pub warm_ups: usize,
    /// How often the whole sweep is run (`-N`); none means without end.
    pub cycles: Option<u64>,
    /// Whether all threads join at once (`-p`). They always do.
    pub parallel_init: bool,
    /// Correctness checks per size and mode (`-c`).
    pub checks: usize,
    /// The operators to run (`-o`).
    pub operators: Vec<Operator>,
    /// The element types to run (`-d`).
    pub types: Vec<TypeName>,
    /// The roots to run (`-r`).
    pub root: Root,
    /// Where the ranks wait for each other (`-z`).
    pub blocking: Blocking,
    /// How long one test may take (`-T`).
    pub timeout: Option<Duration>,
    /// Whether the time column is processor time (`-C`).
    pub cpu_time: bool,
    /// Whether rows end with the time of day (`-S`).
    pub timestamps: bool,
    /// Where the JSON report goes (`-J`).
    pub output: Option<PathBuf>,
    /// How the ranks' times become one (`-a`).
    pub average: Average,
    /// Elements by which buffers are moved off their alignment (`-u`).
    pub unalign: usize,
    /// Whether each iteration is timed (`-I`, `--percentiles`).
    pub per_iteration: Option<PerIteration>,
    /// Iterations left out of the statistics (`-K`).
    pub skip: usize,
    /// Whether the buffers are the library's own, registered memory (`-R 1`, `-R 2`).
    pub registered: bool,
    /// Whether that has to be memory of GPUs (`-R 2`).
    pub windows: bool,
    /// Whether all_gather and alltoall are left to copy engines (`-x 2`).
    pub copy_engines: bool,
    /// Where the buffers are (`--device`).
    pub place: Place,
    /// How often a graph of the iterations is launched (`-G`); 0 for no graph.
    pub graph_launches: usize,
}

/// Where the buffers are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In memory of the host.
    Cpu,
    /// In memory of the host's GPUs, which the ranks take by turns.
    Cuda,
    /// In memory of the GPUs, if there are any.
    Auto,
}

/// From one size to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Times this, which is at least 2.
    Factor(u64),
    /// Plus this many bytes, at least 1.
    Bytes(u64),
}

/// Which roots are run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Root {
    /// This one.
    One(usize),
    /// Every rank in turn.
    All,
}

/// Where ranks wait for each other while they are timed. Calls are blocking, so that waiting for the call itself needs
/// no mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blocking {
    /// Nowhere (`-z 0`).
    No,
    /// At a barrier after every operation, inside the time (`-z 1`).
    BarrierEach,
    /// Nowhere beyond the call's own end (`-z 2`).
    Wait,
    /// At a barrier after every iteration, outside the time (`-z 3`).
    BarrierOutside,
}

/// How the ranks' times become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Average {
    /// Rank 0's.
    First,
    /// The mean.
    Mean,
    /// The shortest.
    Min,
    /// The longest.
    Max,
}

/// Which columns iterations timed one by one add to the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PerIteration {
    /// nccl-tests' own: shortest, longest, 99th percentile, variation.
    Spread,
    /// Percentiles: 50th, 95th, 99th, and the longest.
    Percentiles,
}

/// What the command line asks for.
#[derive(Clone, PartialEq, Debug)]
pub enum Asked {
    /// To run.
    Run(Box<Options>),
    /// To be told the usage, which is this text.
    Help(String),
}

impl Options {
    /// Reads a command line, whose first word is the program's name.
    ///
    /// # Errors
    ///
    /// An unknown flag or a value out of range (exit code 6), a bad size (255), a flag that needs a GPU build (5).
    pub fn parse<I, T>(words: I) -> Result<Asked, Failure>
    where
        I: IntoIterator<Item = T>,
        T: Into<std::ffi::OsString> + Clone,
    {
        match flags::read(words)? {
            flags::Read::Flags(flags) => Ok(Asked::Run(Box::new(check::options(*flags)?))),
            flags::Read::Help(text) => Ok(Asked::Help(text)),
        }
    }

    /// How many ranks this process brings.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.threads * self.ranks_per_thread
    }

    /// A number that is equal on two ranks exactly if what they would do in step is equal.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let shared = Options { output: None, threads: 0, ranks_per_thread: 0, ..self.clone() };
        super::verify::hash::of_bytes(format!("{shared:?}").as_bytes())
    }
}

#[cfg(test)]
mod tests;
