//! The command line of `paceline simulate`.

use std::path::PathBuf;

use paceline_comm::Collective;

use crate::perf::arguments::size;
use crate::picture;
use crate::rows::collective;

/// Say how long a call would take on a cluster
///
/// The cluster is described, not there: each row's programs say what passes within hosts, between them and beyond their
/// switches, and the description says what that takes. docs/simulate.md has the model, and how far it can be trusted.
#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    /// The collective, such as all_reduce
    #[arg(value_parser = collective)]
    pub collective: Collective,
    /// The cluster: a100, h100, cpu, cloud, a JSON file, or one host of it as a file in NCCL's format (.xml)
    #[arg(long, default_value = "h100", value_name = "NAME|FILE")]
    pub cluster: String,
    /// How many hosts; otherwise what the cluster says
    #[arg(long, value_name = "N")]
    pub hosts: Option<u32>,
    /// Ranks of each host
    #[arg(long, value_name = "N")]
    pub ranks_per_host: Option<u32>,
    /// Network adapters of each host
    #[arg(long, value_name = "N")]
    pub adapters: Option<u32>,
    /// Hosts of each leaf switch, in a fat tree
    #[arg(long, value_name = "HOSTS", conflicts_with = "rails")]
    pub leaf: Option<u32>,
    /// Adapters of equal place share a switch
    #[arg(long)]
    pub rails: bool,
    /// How many times more a leaf's hosts, or a rail's adapters, can send than its switch passes on
    #[arg(long, value_name = "TIMES")]
    pub oversubscription: Option<f64>,
    /// The whole message: the vector, or all ranks' blocks together; K, M and G are binary
    #[arg(short, long, default_value = "1G", value_parser = size)]
    pub bytes: u64,
    /// Also twice, four times, ... as much, up to this
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub to: Option<u64>,
    /// Only this row
    #[arg(long)]
    pub row: Option<String>,
    /// The call is that of every N-th rank, and all N such groups make it at once: of data-parallel ranks, where N are
    /// tensor-parallel
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub stride: Option<u32>,
    /// One adapter is that many times slower
    #[arg(long, value_name = "TIMES", default_value_t = 1.0, value_parser = times)]
    pub slow_adapter: f64,
    /// So many adapters of a host are dead
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub dead_adapters: u32,
    /// One link within a host is that many times slower
    #[arg(long, value_name = "TIMES", default_value_t = 1.0, value_parser = times)]
    pub slow_near: f64,
    /// One rank comes that much later
    #[arg(long, value_name = "US", default_value_t = 0.0, value_parser = microseconds)]
    pub straggler_us: f64,
    /// Also makes the call, with the engine and all its messages, on a simulated network of up to 1024 ranks
    #[arg(long)]
    pub engine: bool,
    /// With --engine: this rank dies in the middle of the call
    #[arg(long, value_name = "RANK", requires = "engine")]
    pub dead_rank: Option<u32>,
    /// With --engine: where randomness comes from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// Draws times against bytes into a file that ends in .svg or .png
    #[arg(long, value_name = "FILE", value_parser = picture::file)]
    pub plot: Option<PathBuf>,
}

impl Arguments {
    /// The sizes that are asked for.
    pub(super) fn sizes(&self) -> Vec<u64> {
        let last = self.to.unwrap_or(self.bytes);
        let doubled = |bytes: &u64| bytes.checked_mul(2).filter(|bytes| *bytes <= last && *bytes > 0);
        std::iter::successors(Some(self.bytes), doubled).collect()
    }
}

fn times(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(times) if (1.0..=1e6).contains(&times) => Ok(times),
        _ => Err("a number from 1 to 1000000 is needed".to_owned()),
    }
}

fn microseconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(us) if (0.0..=1e12).contains(&us) => Ok(us),
        _ => Err("a time in microseconds is needed".to_owned()),
    }
}
