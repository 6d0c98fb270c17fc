//! The reference's table, to the byte.

use super::*;
use crate::perf::arguments::Asked;

fn options(line: &str) -> Options {
    match Options::parse(std::iter::once("all_reduce_perf").chain(line.split_whitespace())).unwrap() {
        Asked::Run(options) => *options,
        Asked::Help(_) => panic!("help"),
    }
}

fn half(microseconds: f64, algorithm: f64, wrong: Option<u64>) -> Half {
    Half { microseconds, algorithm, bus: algorithm, wrong, iterations: None }
}

fn example() -> Row {
    Row {
        size: 1_048_576,
        count: 262_144,
        type_name: "float",
        operator: "sum",
        root: None,
        out_of_place: half(45.12, 23.24, Some(0)),
        in_place: half(44.98, 23.31, Some(0)),
        timestamp: None,
    }
}

#[test]
fn the_reference_table() {
    let options = options("-g 2 -b 8 -e 1M -f 2");
    let device = Device {
        rank: 0,
        pid: 12345,
        host: "host1".to_string(),
        device: 0,
        link: "shm".to_string(),
        info: "CPU".to_string(),
    };
    let got = banner("all_reduce_perf", &options)
        + &super::device(&device)
        + &header(&options)
        + &row(&example(), None)
        + &footer("all_reduce_perf", 0, 23.275, None);
    let want = [
        concat!("# paceline-tools version ", env!("CARGO_PKG_VERSION")),
        "# Collective test starting: all_reduce_perf",
        "# nThread 1 nGpus 2 minBytes 8 maxBytes 1048576 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0",
        "#",
        "# Using devices",
        "#  Rank  0 Group  0 Pid  12345 on      host1 device  0 [shm] CPU",
        "#",
        "#                                                              out-of-place                       in-place          ",
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong ",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         ",
        "     1048576        262144     float     sum      -1    45.12   23.24   23.24       0    44.98   23.31   23.31       0",
        "# Out of bounds values : 0 OK",
        "# Avg bus bandwidth    : 23.275 ",
        "#",
        "# Collective test concluded: all_reduce_perf",
        "#",
        "",
        "",
    ];
    assert_eq!(got, want.join("\n"));
}

#[test]
fn rows_with_everything() {
    let spread = Spread::of(&[1.0, 2.0, 3.0]);
    let iterations = Iterations { spread, skipped: 0, times: vec![1.0, 2.0, 3.0], by_process: vec![] };
    let full = |wrong| Half { iterations: Some(iterations.clone()), ..half(12_345_678.9, 0.001, wrong) };
    let row_of = |out_of_place, in_place, timestamp: Option<&str>| Row {
        root: Some(3),
        operator: "none",
        out_of_place,
        in_place,
        timestamp: timestamp.map(str::to_string),
        ..example()
    };
    let front = "     1048576        262144     float    none       3";
    let cases = [
        (
            row_of(half(1.0, 2.0, Some(7)), half(1.0, 2.0, None), None),
            None,
            "     1.00    2.00    2.00       7     1.00    2.00    2.00     N/A",
        ),
        (
            row_of(half(1.0, 2.0, Some(7)), half(1.0, 2.0, Some(12_345_678)), Some("2025-01-02 03:04:05")),
            None,
            "     1.00    2.00    2.00       7     1.00    2.00    2.00  1.23457e+07  2025-01-02 03:04:05",
        ),
        (
            row_of(full(Some(0)), full(None), None),
            Some(PerIteration::Spread),
            "  1.2e+07    0.00    0.00       0     1.00     3.00     3.00    40.82  1.2e+07    0.00    0.00     N/A     1.00     3.00     3.00    40.82",
        ),
        (
            row_of(full(Some(0)), full(None), None),
            Some(PerIteration::Percentiles),
            "  1.2e+07    0.00    0.00       0     2.00     3.00     3.00     3.00  1.2e+07    0.00    0.00     N/A     2.00     3.00     3.00     3.00",
        ),
    ];
    for (case, columns, want) in cases {
        assert_eq!(row(&case, columns), format!("{front}{want}\n"));
    }
}

#[test]
fn headers_with_everything() {
    let lines = |line: &str| header(&options(line)).lines().map(str::to_string).collect::<Vec<_>>();
    let stamped = lines("-S 1 -C 1");
    assert!(stamped[2].ends_with("  cputime   algbw   busbw  #wrong           timestamp"), "{:?}", stamped[2]);
    assert!(stamped[3].ends_with("(GB/s)  (GB/s)           %Y-%m-%d %H:%M:%S"), "{:?}", stamped[3]);
    let spread = lines("-I 1");
    assert_eq!(
        spread[1],
        "#                                                                 out-of-place (+ per-iteration)                                in-place (+ per-iteration)"
    );
    assert!(spread[2].ends_with("#wrong    i_min    i_max    i_p99    i_cv% "), "{:?}", spread[2]);
    assert!(spread[3].ends_with("     (us)     (us)     (us)      (%) "), "{:?}", spread[3]);
    assert!(lines("--percentiles 1")[2].ends_with("#wrong    i_p50    i_p95    i_p99    i_max "));
}

#[test]
fn banners_name_what_is_on() {
    for (line, want) in [
        ("-z 1", "# Blocking Enabled: wait and barrier after each inner iteration (-m) \n"),
        ("-z 2", "# Blocking Enabled: wait after each inner iteration (-m), no barrier \n"),
        ("-z 3", "time excludes barrier \n"),
        ("-I 1 -K 2", "; summary skips first 2 iterations \n"),
        ("-p 1", "# Parallel Init Enabled"),
        ("-i 4", " step: 4(bytes) "),
    ] {
        let text = banner("x", &options(line));
        assert!(text.contains(want), "{line}: {text}");
    }
}

#[test]
fn footers_judge() {
    let text = footer("x", 3, 0.0, Some(false));
    assert!(text.contains("# Out of bounds values : 3 FAILED\n# Avg bus bandwidth    : 0 FAILED\n"), "{text}");
    assert!(footer("x", 0, 2.0, Some(true)).contains("bandwidth    : 2 OK\n"));
}
