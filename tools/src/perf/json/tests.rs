//! The reference's shape, key by key.

use super::*;
use crate::perf::arguments::Asked;
use crate::perf::statistics::Spread;

fn options(line: &str) -> Options {
    match Options::parse(std::iter::once("x").chain(line.split_whitespace())).unwrap() {
        Asked::Run(options) => *options,
        Asked::Help(_) => panic!("help"),
    }
}

fn keys(value: &serde_json::Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn document(options: &Options) -> serde_json::Value {
    let device =
        Device { rank: 0, pid: 7, host: "h".to_string(), device: 0, link: "shm".to_string(), info: "CPU".to_string() };
    let iterations = options.per_iteration.map(|_| Iterations {
        spread: Spread::of(&[1.0, 2.0]),
        skipped: 0,
        times: vec![1.0, 2.0],
        by_process: vec![vec![1.0, 2.0], vec![0.5, 1.0]],
    });
    let half = |wrong| Half { microseconds: 1.5, algorithm: 2.0, bus: f64::NAN, wrong, iterations: iterations.clone() };
    let row = Row {
        size: 8,
        count: 2,
        type_name: "float",
        operator: "sum",
        root: None,
        out_of_place: half(Some(0)),
        in_place: half(None),
        timestamp: None,
    };
    let mut document = Document::begin("2025-01-02 03:04:05".to_string(), vec!["x".to_string()]);
    document.configure(options, &[device]);
    document.add(&row, options);
    document.conclude(0, 2.5, None);
    document.end(None, "2025-01-02 03:04:06".to_string());
    serde_json::to_value(&document).unwrap()
}

fn sorted<const N: usize>(mut names: [&str; N]) -> Vec<&str> {
    names.sort_unstable();
    names.to_vec()
}

#[test]
fn the_reference_shape() {
    let value = document(&options("-b 8 -e 64 -f 2"));
    let mut top = keys(&value);
    top.sort_unstable();
    let want = [
        "version",
        "start_time",
        "args",
        "nccl_version",
        "config",
        "results",
        "out_of_bounds",
        "average_bus_bandwidth",
        "errors",
        "end_time",
    ];
    assert_eq!(top, sorted(want));
    let mut config = keys(&value["config"]);
    config.sort_unstable();
    let want = [
        "nthreads",
        "ngpus",
        "minimum_bytes",
        "maximum_bytes",
        "step_factor",
        "warmup_iters",
        "iterations",
        "aggregated_iterations",
        "validation",
        "graph",
        "blocking_collectives",
        "per_iter_timing",
        "per_iter_skip",
        "parallel_init",
        "devices",
    ];
    assert_eq!(config, sorted(want));
    let mut device = keys(&value["config"]["devices"][0]);
    device.sort_unstable();
    let want = ["rank", "group", "pid", "hostname", "device", "device_hex", "device_info"];
    assert_eq!(device, sorted(want));
    let mut row = keys(&value["results"][0]);
    row.sort_unstable();
    let want =
        ["size", "count", "type", "redop", "root", "out_of_place", "in_place", "actual_iterations", "experiment_name"];
    assert_eq!(row, sorted(want));
    let mut half = keys(&value["results"][0]["out_of_place"]);
    half.sort_unstable();
    assert_eq!(half, sorted(["time", "alg_bw", "bus_bw", "nwrong"]));
    assert_eq!(value["version"], 3);
    assert_eq!(value["results"][0]["root"], "    -1");
    assert_eq!(value["results"][0]["out_of_place"]["bus_bw"], "nan");
    assert_eq!(value["results"][0]["out_of_place"]["nwrong"], 0.0);
    assert!(value["results"][0]["in_place"]["nwrong"].is_null());
    assert_eq!(value["config"]["blocking_collectives"], "false");
    assert_eq!(value["out_of_bounds"]["okay"], "true");
    assert_eq!(value["average_bus_bandwidth"]["okay"], "unchecked");
}

#[test]
fn what_options_add() {
    let value = document(&options("-C 1 -I 1 -z 1 -i 8"));
    assert_eq!(value["config"]["step_bytes"], 8);
    assert_eq!(value["config"]["blocking_collectives"], "true");
    assert_eq!(value["results"][0]["out_of_place"]["cpu_time"], 1.5);
    let mut iterations = keys(&value["results"][0]["in_place_per_iter"]);
    iterations.sort_unstable();
    let want = [
        "skipped_iterations",
        "min_us",
        "max_us",
        "avg_us",
        "p50_us",
        "p95_us",
        "p99_us",
        "stdev_us",
        "cv_pct",
        "times_us",
        "per_process_max_times_us",
    ];
    assert_eq!(iterations, sorted(want));
}
