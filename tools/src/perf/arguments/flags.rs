//! The flags as they are written. What their values mean is the business of `check`.

use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser};

use super::super::failure::Failure;

/// Measures one collective: time per operation, bandwidths, and whether the results are right.
#[derive(Parser, Debug)]
#[command(infer_long_args = true, args_override_self = true, disable_version_flag = true)]
#[command(
    after_help = "Sizes take K, M or G (binary): 8, 64K, 0.5G. Where a size is split among the ranks, each share is \
    rounded down to 16 bytes, or to elements if it is smaller, and is at least one element: no row measures nothing.\n\n\
    Exit codes: 0 right, 1 internal error, 3 communication failed, 4 timeout, 5 not in this build, 6 usage, 7 wrong \
    results or too little bandwidth, 255 bad sizes."
)]
pub struct Flags {
    /// Threads per process
    #[arg(short = 't', long = "nthreads", value_name = "threads", default_value = "1")]
    pub threads: String,
    /// Ranks per thread
    #[arg(short = 'g', long = "ngpus", value_name = "ranks per thread", default_value = "1")]
    pub ranks_per_thread: String,
    /// The smallest size
    #[arg(short = 'b', long = "minbytes", value_name = "size", default_value = "32M")]
    pub min_bytes: String,
    /// The largest size
    #[arg(short = 'e', long = "maxbytes", value_name = "size", default_value = "32M")]
    pub max_bytes: String,
    /// From one size to the next, added
    #[arg(short = 'i', long = "stepbytes", value_name = "size", default_value = "1M")]
    pub step_bytes: String,
    /// From one size to the next, multiplied; above 1 it wins over -i
    #[arg(short = 'f', long = "stepfactor", value_name = "factor", default_value = "1")]
    pub step_factor: String,
    /// Timed iterations
    #[arg(short = 'n', long = "iters", value_name = "count", default_value = "20")]
    pub iterations: String,
    /// Operations in each iteration; as many of them as have buffers of their own run at the same time
    #[arg(short = 'm', long = "agg_iters", value_name = "count", default_value = "1")]
    pub aggregated: String,
    /// Warm-up operations per size
    #[arg(short = 'w', long = "warmup_iters", value_name = "count", default_value = "1")]
    pub warm_ups: String,
    /// How often to run all sizes; 0 for ever
    #[arg(short = 'N', long = "run_cycles", value_name = "count", default_value = "1")]
    pub cycles: String,
    /// Join from all threads at once (always so)
    #[arg(short = 'p', long = "parallel_init", value_name = "0/1", default_value = "0")]
    pub parallel_init: String,
    /// Correctness checks per size and mode; 0 for none
    #[arg(short = 'c', long = "check", value_name = "count", default_value = "1")]
    pub checks: String,
    /// sum, prod, max, min, avg, mulsum or all
    #[arg(short = 'o', long = "op", value_name = "operator", default_value = "sum")]
    pub operator: String,
    /// int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, f8e4m3, f8e5m2 or all
    #[arg(short = 'd', long = "datatype", value_name = "type", default_value = "float")]
    pub data_type: String,
    /// The root; -1 or all for every rank in turn
    #[arg(short = 'r', long = "root", value_name = "rank", default_value = "0")]
    pub root: String,
    /// 1: barrier after each operation; 2: no barrier; 3: barrier after each iteration, not timed
    #[arg(short = 'z', long = "blocking", value_name = "0/1/2/3", default_value = "0")]
    pub blocking: String,
    /// GPU builds only
    #[arg(short = 'y', long = "stream_null", value_name = "0/1", default_value = "0")]
    pub stream_null: String,
    /// Seconds that one test may take
    #[arg(short = 'T', long = "timeout", value_name = "seconds", default_value = "0")]
    pub timeout: String,
    /// On GPUs: capture the iterations into a graph, and launch that so many times; 0 for no graph
    #[arg(short = 'G', long = "cudagraph", value_name = "launches", default_value = "0")]
    pub cuda_graph: String,
    /// Report processor time of the rank's thread; on GPUs, the time until all operations are in the stream
    #[arg(short = 'C', long = "report_cputime", value_name = "0/1", default_value = "0")]
    pub cpu_time: String,
    /// End each row with the time of day
    #[arg(short = 'S', long = "report_timestamps", value_name = "0/1", default_value = "0")]
    pub timestamps: String,
    /// Also write a report; its name ends in .json
    #[arg(short = 'J', long = "output_file", value_name = "file")]
    pub output: Option<std::path::PathBuf>,
    /// The time reported: 0 rank 0's, 1 the mean, 2 the shortest, 3 the longest
    #[arg(short = 'a', long = "average", value_name = "0/1/2/3", default_value = "1")]
    pub average: String,
    /// 1: use registered memory; 2: the same, on GPUs only
    #[arg(short = 'R', long = "local_register", value_name = "0/1/2", default_value = "0")]
    pub register: String,
    /// On GPUs: 2 leaves all_gather and alltoall to copy engines; 0 is the default, 1 is not there
    #[arg(short = 'x', long = "cta_policy", value_name = "0/1/2")]
    pub cta_policy: Option<String>,
    /// GPU builds only
    #[arg(short = 'D', long = "device_implementation", value_name = "number", default_value = "0")]
    pub device_implementation: String,
    /// GPU builds only
    #[arg(short = 'V', long = "device_cta_count", value_name = "number")]
    pub device_cta_count: Option<String>,
    /// GPU builds only
    #[arg(short = 'M', long = "memory", value_name = "0/1", default_value = "0")]
    pub memory: String,
    /// Move buffers this many elements off their alignment
    #[arg(short = 'u', long = "unalign", value_name = "elements", default_value = "0")]
    pub unalign: String,
    /// Time each iteration: columns for shortest, longest, p99 and variation
    #[arg(short = 'I', long = "per_iter_timing", value_name = "0/1", default_value = "0")]
    pub per_iteration: String,
    /// With -I: leave the first iterations out of the statistics
    #[arg(short = 'K', long = "per_iter_skip", value_name = "count", default_value = "0")]
    pub skip: String,
    /// Where the buffers are: cpu, cuda (the host's GPUs by turns), or auto, which is cuda where there is a GPU
    #[arg(long = "device", value_name = "cpu/cuda/auto", default_value = "auto")]
    pub device: String,
    /// Time each iteration: columns for p50, p95, p99 and the longest
    #[arg(long = "percentiles", value_name = "0/1", default_value = "0")]
    pub percentiles: String,
}

/// What reading gave.
#[derive(Debug)]
pub enum Read {
    /// The flags.
    Flags(Box<Flags>),
    /// A wish for this usage text.
    Help(String),
}

/// Splits a command line into flags.
///
/// # Errors
///
/// An unknown flag, a missing value, a stray word.
pub fn read<I, T>(words: I) -> Result<Read, Failure>
where
    I: IntoIterator<Item = T>,
    T: Into<std::ffi::OsString> + Clone,
{
    let command = Flags::command().mut_args(|argument| argument.allow_negative_numbers(true));
    let matches = match command.try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => return Ok(Read::Help(error.to_string())),
        Err(mut error) => {
            if error.kind() == ErrorKind::UnknownArgument {
                error.remove(ContextKind::Usage);
            }
            let text = error.to_string();
            return Err(Failure::Usage(text.trim_start_matches("error: ").trim_end().to_string()));
        }
    };
    let flags = Flags::from_arg_matches(&matches).map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(Read::Flags(Box::new(flags)))
}
