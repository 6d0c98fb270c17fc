//! The table on standard output, byte for byte in nccl-tests' format: banner, header, rows, footer.

use std::fmt::Write;

use super::arguments::{Blocking, Options, PerIteration, Step};
use super::number::{fixed_width, general};
use super::statistics::Spread;

/// How the time of day is written.
pub const TIME_FORMAT: &str = "%Y-%m-%d %H:%M:%S";

/// One line of the table.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Bytes.
    pub size: u64,
    /// Elements, as the call counts them.
    pub count: u64,
    /// The element type.
    pub type_name: &'static str,
    /// The operator, or `none`.
    pub operator: &'static str,
    /// The root, if there is one.
    pub root: Option<usize>,
    /// Out of place.
    pub out_of_place: Half,
    /// In place.
    pub in_place: Half,
    /// The time of day at its end.
    pub timestamp: Option<String>,
}

/// The measurements of one mode.
#[derive(Clone, PartialEq, Debug)]
pub struct Half {
    /// Microseconds per operation.
    pub microseconds: f64,
    /// Algorithm bandwidth, GB/s.
    pub algorithm: f64,
    /// Bus bandwidth, GB/s.
    pub bus: f64,
    /// Wrong elements on all ranks; none if not checked.
    pub wrong: Option<u64>,
    /// The iterations one by one.
    pub iterations: Option<Iterations>,
}

/// The times of single iterations, in microseconds.
#[derive(Clone, PartialEq, Debug)]
pub struct Iterations {
    /// Of the longest time of any rank in each iteration, without those skipped.
    pub spread: Spread,
    /// How many are skipped.
    pub skipped: usize,
    /// The longest time of any rank, for each iteration.
    pub times: Vec<f64>,
    /// The longest time of any rank of each process.
    pub by_process: Vec<Vec<f64>>,
}

/// A rank's line in the banner.
#[derive(Clone, PartialEq, Debug)]
pub struct Device {
    /// The rank.
    pub rank: usize,
    /// Its process.
    pub pid: u32,
    /// Its host.
    pub host: String,
    /// Its number on the host.
    pub device: usize,
    /// What joins it to the next rank.
    pub link: String,
    /// Its processor.
    pub info: String,
}

/// The lines before the list of ranks.
#[must_use]
pub fn banner(program: &str, options: &Options) -> String {
    let (step, kind) = match options.step {
        Step::Factor(factor) => (factor, "factor"),
        Step::Bytes(bytes) => (bytes, "bytes"),
    };
    let mut text = format!("# paceline-tools version {}\n", env!("CARGO_PKG_VERSION"));
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    line(format!("# Collective test starting: {program}"));
    line(format!(
        "# nThread {} nGpus {} minBytes {} maxBytes {} step: {step}({kind}) warmup iters: {} iters: {} agg iters: {} \
         validation: {} graph: 0 unalign: {}",
        options.threads,
        options.ranks_per_thread,
        options.min_bytes,
        options.max_bytes,
        options.warm_ups,
        options.iterations,
        options.aggregated,
        options.checks,
        options.unalign,
    ));
    match options.blocking {
        Blocking::No => {}
        Blocking::BarrierEach => {
            line("# Blocking Enabled: wait and barrier after each inner iteration (-m) ".to_string());
        }
        Blocking::Wait => line("# Blocking Enabled: wait after each inner iteration (-m), no barrier ".to_string()),
        Blocking::BarrierOutside => line(
            "# Blocking Enabled: wait and barrier after each outer iteration (-n); time excludes barrier ".to_string(),
        ),
    }
    if options.per_iteration.is_some() {
        let skip = match options.skip {
            0 => String::new(),
            skip => format!("; summary skips first {skip} iterations"),
        };
        line(format!("# Per-Iteration Report: host clock timing; i_* uses max over process rows{skip} "));
    }
    if options.parallel_init {
        line("# Parallel Init Enabled: threads join concurrently ".to_string());
    }
    line("#".to_string());
    line("# Using devices".to_string());
    text
}

/// A rank's line.
#[must_use]
pub fn device(device: &Device) -> String {
    let Device { rank, pid, host, device, link, info } = device;
    format!("#  Rank {rank:2} Group {:2} Pid {pid:6} on {host:>10} device {device:2} [{link}] {info}\n", 0)
}

/// The lines between the list of ranks and the rows.
#[must_use]
pub fn header(options: &Options) -> String {
    let time = if options.cpu_time { "cputime" } else { "time" };
    let (stamp, format, width) = if options.timestamps { ("timestamp", TIME_FORMAT, 19) } else { ("", "", 0) };
    let front = |names: [&str; 5]| {
        format!("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", names[0], names[1], names[2], names[3], names[4])
    };
    let iterations = match options.per_iteration {
        None => None,
        Some(PerIteration::Spread) => Some(["i_min", "i_max", "i_p99", "i_cv%"]),
        Some(PerIteration::Percentiles) => Some(["i_p50", "i_p95", "i_p99", "i_max"]),
    };
    let half = |names: [&str; 4], more: Option<[&str; 4]>| {
        let mut text = format!("  {:>7}  {:>6}  {:>6}  {:>6}", names[0], names[1], names[2], names[3]);
        more.iter().flatten().for_each(|name| write!(text, "  {name:>7}").expect("strings take everything"));
        text
    };
    let title = match iterations {
        None => "           out-of-place                       in-place          ".to_string(),
        Some(_) => format!("{:14}out-of-place (+ per-iteration){:32}in-place (+ per-iteration)", "", ""),
    };
    let last = if options.per_iteration == Some(PerIteration::Spread) { "(%)" } else { "(us)" };
    let units = iterations.map(|_| ["(us)", "(us)", "(us)", last]);
    let names = half([time, "algbw", "busbw", "#wrong"], iterations);
    let units = half(["(us)", "(GB/s)", "(GB/s)", ""], units);
    let empty = front([""; 5]);
    let (upper, lower) = (front(["size", "count", "type", "redop", "root"]), front(["(B)", "(elements)", "", "", ""]));
    format!("#\n{empty}{title}\n{upper}{names}{names} {stamp:>width$}\n{lower}{units}{units} {format:>width$}\n")
}

/// A row.
#[must_use]
pub fn row(row: &Row, per_iteration: Option<PerIteration>) -> String {
    let root = row.root.map_or(-1, |root| root as i64);
    let mut text = format!("{:12}  {:12}  {:>8}  {:>6}  {root:6}", row.size, row.count, row.type_name, row.operator);
    for half in [&row.out_of_place, &row.in_place] {
        let wrong = half.wrong.map_or("   N/A".to_string(), |wrong| format!("{:>6}", general(wrong as f64)));
        let (time, algorithm) = (fixed_width(half.microseconds, 7), fixed_width(half.algorithm, 6));
        write!(text, "  {time}  {algorithm}  {}  {wrong}", fixed_width(half.bus, 6)).expect("strings take everything");
        if let (Some(iterations), Some(columns)) = (&half.iterations, per_iteration) {
            let Spread { min, max, p50, p95, p99, .. } = iterations.spread;
            let values = match columns {
                PerIteration::Spread => [min, max, p99, iterations.spread.variation()],
                PerIteration::Percentiles => [p50, p95, p99, max],
            };
            values.iter().for_each(|value| {
                write!(text, "  {}", fixed_width(*value, 7)).expect("strings take everything");
            });
        }
    }
    if let Some(timestamp) = &row.timestamp {
        write!(text, "{timestamp:>21}").expect("strings take everything");
    }
    text.push('\n');
    text
}

/// The lines after the rows. `enough` says whether the bandwidth is what was demanded, if any was.
#[must_use]
pub fn footer(program: &str, out_of_bounds: u64, bandwidth: f64, enough: Option<bool>) -> String {
    let verdict = |good: bool| if good { "OK" } else { "FAILED" };
    let bandwidth_verdict = enough.map_or("", verdict);
    format!(
        "# {:<20} : {out_of_bounds} {}\n# {:<20} : {} {bandwidth_verdict}\n#\n# Collective test concluded: {program}\n#\n\n",
        "Out of bounds values",
        verdict(out_of_bounds == 0),
        "Avg bus bandwidth",
        general(bandwidth),
    )
}

#[cfg(test)]
mod tests;
