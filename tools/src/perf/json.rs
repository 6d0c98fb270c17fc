//! The JSON report, in nccl-tests' shape (version 3), but for the environment, which may hold secrets and is left out.
//!
//! As there, booleans are the texts "true" and "false", the root is a padded text, and a number that is none is "nan".

use serde::{Serialize, Serializer};

use super::arguments::{Blocking, Options, Step};
use super::table::{Device, Half, Iterations, Row};

/// The whole report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Document {
    version: u32,
    start_time: String,
    args: Vec<String>,
    nccl_version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<Config>,
    results: Vec<ResultRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    out_of_bounds: Option<OutOfBounds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    average_bus_bandwidth: Option<AverageBandwidth>,
    errors: Vec<String>,
    end_time: String,
}

#[derive(Clone, Debug, Serialize)]
struct Config {
    nthreads: usize,
    ngpus: usize,
    minimum_bytes: u64,
    maximum_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    step_factor: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    step_bytes: Option<u64>,
    warmup_iters: usize,
    iterations: usize,
    aggregated_iterations: usize,
    validation: usize,
    graph: u32,
    blocking_collectives: &'static str,
    per_iter_timing: &'static str,
    per_iter_skip: usize,
    parallel_init: &'static str,
    devices: Vec<DeviceRow>,
}

#[derive(Clone, Debug, Serialize)]
struct DeviceRow {
    rank: usize,
    group: u32,
    pid: u32,
    hostname: String,
    device: usize,
    device_hex: String,
    device_info: String,
}

#[derive(Clone, Debug, Serialize)]
struct ResultRow {
    size: u64,
    count: u64,
    r#type: &'static str,
    redop: &'static str,
    root: String,
    out_of_place: HalfRow,
    #[serde(skip_serializing_if = "Option::is_none")]
    out_of_place_per_iter: Option<IterationsRow>,
    in_place: HalfRow,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_place_per_iter: Option<IterationsRow>,
    actual_iterations: usize,
    experiment_name: &'static str,
}

#[derive(Clone, Debug, Serialize)]
struct HalfRow {
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "optional")]
    time: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "optional")]
    cpu_time: Option<f64>,
    #[serde(serialize_with = "number")]
    alg_bw: f64,
    #[serde(serialize_with = "number")]
    bus_bw: f64,
    #[serde(serialize_with = "optional")]
    nwrong: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
struct IterationsRow {
    skipped_iterations: usize,
    min_us: f64,
    max_us: f64,
    avg_us: f64,
    p50_us: f64,
    p95_us: f64,
    p99_us: f64,
    stdev_us: f64,
    cv_pct: f64,
    times_us: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    per_process_max_times_us: Vec<Vec<f64>>,
}

#[derive(Clone, Debug, Serialize)]
struct OutOfBounds {
    count: u64,
    okay: &'static str,
}

#[derive(Clone, Debug, Serialize)]
struct AverageBandwidth {
    #[serde(serialize_with = "number")]
    bandwidth: f64,
    okay: &'static str,
}

impl Document {
    /// A report that has begun.
    #[must_use]
    pub fn begin(start_time: String, args: Vec<String>) -> Document {
        Document { version: 3, start_time, args, nccl_version: version_code(), ..Document::default() }
    }

    /// What is measured, and by whom.
    pub fn configure(&mut self, options: &Options, devices: &[Device]) {
        let (step_factor, step_bytes) = match options.step {
            Step::Factor(factor) => (Some(factor), None),
            Step::Bytes(bytes) => (None, Some(bytes)),
        };
        self.config = Some(Config {
            nthreads: options.threads,
            ngpus: options.ranks_per_thread,
            minimum_bytes: options.min_bytes,
            maximum_bytes: options.max_bytes,
            step_factor,
            step_bytes,
            warmup_iters: options.warm_ups,
            iterations: options.iterations,
            aggregated_iterations: options.aggregated,
            validation: options.checks,
            graph: 0,
            blocking_collectives: truth(options.blocking != Blocking::No),
            per_iter_timing: truth(options.per_iteration.is_some()),
            per_iter_skip: options.skip,
            parallel_init: truth(options.parallel_init),
            devices: devices
                .iter()
                .map(|device| DeviceRow {
                    rank: device.rank,
                    group: 0,
                    pid: device.pid,
                    hostname: device.host.clone(),
                    device: device.device,
                    device_hex: device.link.clone(),
                    device_info: device.info.clone(),
                })
                .collect(),
        });
    }

    /// A line of the table.
    pub fn add(&mut self, row: &Row, options: &Options) {
        self.results.push(ResultRow {
            size: row.size,
            count: row.count,
            r#type: row.type_name,
            redop: row.operator,
            root: format!("{:6}", row.root.map_or(-1, |root| root as i64)),
            out_of_place: half(&row.out_of_place, options),
            out_of_place_per_iter: row.out_of_place.iterations.as_ref().map(iterations),
            in_place: half(&row.in_place, options),
            in_place_per_iter: row.in_place.iterations.as_ref().map(iterations),
            actual_iterations: options.iterations,
            experiment_name: "",
        });
    }

    /// The lines below the table.
    pub fn conclude(&mut self, out_of_bounds: u64, bandwidth: f64, enough: Option<bool>) {
        self.out_of_bounds = Some(OutOfBounds { count: out_of_bounds, okay: truth(out_of_bounds == 0) });
        self.average_bus_bandwidth = Some(AverageBandwidth { bandwidth, okay: enough.map_or("unchecked", truth) });
    }

    /// What went wrong, and the end.
    pub fn end(&mut self, error: Option<String>, end_time: String) {
        self.errors.extend(error);
        self.end_time = end_time;
    }
}

fn half(half: &Half, options: &Options) -> HalfRow {
    HalfRow {
        time: (!options.cpu_time).then_some(half.microseconds),
        cpu_time: options.cpu_time.then_some(half.microseconds),
        alg_bw: half.algorithm,
        bus_bw: half.bus,
        nwrong: half.wrong.map(|wrong| wrong as f64),
    }
}

fn iterations(iterations: &Iterations) -> IterationsRow {
    let spread = &iterations.spread;
    IterationsRow {
        skipped_iterations: iterations.skipped,
        min_us: spread.min,
        max_us: spread.max,
        avg_us: spread.mean,
        p50_us: spread.p50,
        p95_us: spread.p95,
        p99_us: spread.p99,
        stdev_us: spread.deviation,
        cv_pct: spread.variation(),
        times_us: iterations.times.clone(),
        per_process_max_times_us: if iterations.by_process.len() > 1 { iterations.by_process.clone() } else { vec![] },
    }
}

/// The version as NCCL codes its own: 10,000 for the major, 100 for the minor number.
fn version_code() -> u32 {
    let number = |text: &str| text.parse::<u32>().expect("cargo sets numbers");
    let (major, minor) = (number(env!("CARGO_PKG_VERSION_MAJOR")), number(env!("CARGO_PKG_VERSION_MINOR")));
    10_000 * major + 100 * minor + number(env!("CARGO_PKG_VERSION_PATCH"))
}

fn truth(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

fn number<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.is_nan() { serializer.serialize_str("nan") } else { serializer.serialize_f64(*value) }
}

fn optional<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => number(value, serializer),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests;
