//! Whole runs on the fake communicator: the table, the verdict, and every planted fault noticed.

use std::io;

use super::*;
use crate::perf::arguments::{Asked, Options};
use crate::perf::benchmark::{ALL, ALL_REDUCE, Benchmark, GATHER, HYPERCUBE, REDUCE};
use crate::perf::comm::fake::{Fault, set};
use crate::perf::environment::Environment;

/// What is written, for the test to read.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl io::Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn plan(benchmark: Benchmark, line: &str) -> Plan {
    let words = std::iter::once(benchmark.name).chain(line.split_whitespace());
    let Asked::Run(options) = Options::parse(words).unwrap() else { panic!("help") };
    Plan { benchmark, options: *options, environment: Environment::default() }
}

fn run_plan(plan: &Plan, n: usize, fault: Fault) -> (u8, String) {
    let paper = Paper::default();
    let code = run(plan, set(n, fault), vec!["perf".to_string()], Box::new(paper.clone()));
    let text = String::from_utf8(paper.0.lock().unwrap().clone()).unwrap();
    (code, text)
}

fn rows(text: &str) -> Vec<Vec<&str>> {
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| line.split_whitespace().collect())
        .collect()
}

const SMALL: &str = "-b 4 -e 4K -f 4 -n 3 -w 1";

#[test]
fn every_test_is_right_for_every_number_of_ranks() {
    for benchmark in ALL {
        for n in [1, 2, 3, 4, 5, 8] {
            let (code, text) = run_plan(&plan(benchmark, SMALL), n, Fault::None);
            assert_eq!(code, 0, "{} n = {n}:\n{text}", benchmark.name);
            let rows = rows(&text);
            if benchmark.power_of_two && !n.is_power_of_two() {
                assert_eq!(rows[0].join(" "), format!("nRanks {n} is not a power of 2, skipping"));
                continue;
            }
            assert_eq!(rows.len(), 6, "{} n = {n}:\n{text}", benchmark.name);
            for row in rows {
                assert_eq!(row.len(), 13, "{row:?}");
                assert_eq!(row[8], "0", "{row:?}");
                assert_eq!(row[12], "0", "{row:?}");
                assert_eq!(row[3] == "none", !benchmark.reduces, "{row:?}");
                assert_eq!(row[4] == "-1", !benchmark.rooted, "{row:?}");
                assert!(row[0].parse::<u64>().unwrap() > 0, "a row of no bytes: {row:?}");
            }
            assert!(text.contains("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : "), "{text}");
        }
    }
}

#[test]
fn lists_of_types_operators_and_roots_are_run_in_order() {
    let (code, text) = run_plan(&plan(REDUCE, "-b 64 -e 64 -n 1 -o all -r -1"), 2, Fault::None);
    assert_eq!(code, 0, "{text}");
    let got: Vec<String> = rows(&text).iter().map(|row| row[3..5].join(" ")).collect();
    let want: Vec<String> = ["sum", "prod", "max", "min", "avg", "mulsum"]
        .iter()
        .flat_map(|operator| (0..2).map(move |root| format!("{operator} {root}")))
        .collect();
    assert_eq!(got, want);
    let (code, text) = run_plan(&plan(GATHER, "-b 64 -e 64 -n 1 -d all"), 3, Fault::None);
    assert_eq!((code, rows(&text).len()), (0, 12), "{text}");
}

#[test]
fn options_change_what_is_run_and_shown() {
    let cases: [(&str, usize); 11] = [
        ("-z 1", 1),
        ("-z 2", 1),
        ("-z 3 -I 1", 1),
        ("-C 1", 1),
        ("-a 3 -m 4", 1),
        ("-u 3", 1),
        ("-N 3", 3),
        ("-c 0", 1),
        ("-c 3", 1),
        ("-T 600", 1),
        ("-S 1", 1),
    ];
    for (line, want) in cases {
        let (code, text) = run_plan(&plan(ALL_REDUCE, &format!("-b 100 -e 100 -n 5 {line}")), 3, Fault::None);
        assert_eq!((code, rows(&text).len()), (0, want), "{line}:\n{text}");
        assert_eq!(rows(&text)[0].contains(&"N/A"), line == "-c 0", "{line}:\n{text}");
    }
}

#[test]
fn faults_are_noticed() {
    let cases = [
        (ALL_REDUCE, Fault::WrongBit, "", 7),
        (GATHER, Fault::WrongBit, "-r 1", 7),
        (HYPERCUBE, Fault::WrongBit, "", 7),
        (REDUCE, Fault::WritesEverywhere, "", 7),
        (REDUCE, Fault::None, "", 0),
        (ALL_REDUCE, Fault::Fails, "", 3),
        (ALL_REDUCE, Fault::Panics, "", 1),
        (ALL_REDUCE, Fault::Hangs, "-T 1", 4),
    ];
    for (benchmark, fault, line, want) in cases {
        let (code, text) = run_plan(&plan(benchmark, &format!("{SMALL} {line}")), 2, fault);
        assert_eq!(code, want, "{} {fault:?}:\n{text}", benchmark.name);
        assert_eq!(text.contains("FAILED"), want == 7, "{} {fault:?}:\n{text}", benchmark.name);
        if want == 7 {
            assert!(rows(&text).iter().all(|row| row[8] != "0"), "{} {fault:?}:\n{text}", benchmark.name);
        }
    }
}

#[test]
fn ranks_that_cannot_be_are_refused() {
    let cases = [(REDUCE, "-r 3", 2, 6), (ALL_REDUCE, "-r 3", 2, 0), (REDUCE, "-r 2", 3, 0)];
    for (benchmark, line, n, want) in cases {
        let (code, text) = run_plan(&plan(benchmark, &format!("-b 8 -e 8 -n 1 {line}")), n, Fault::None);
        assert_eq!(code, want, "{} {line}:\n{text}", benchmark.name);
    }
}

#[test]
fn too_little_bandwidth_fails() {
    for (least, want) in [(0.0, 0), (1e9, 7)] {
        let mut plan = plan(ALL_REDUCE, "-b 8 -e 8 -n 1");
        plan.environment.min_bandwidth = Some(least);
        let (code, text) = run_plan(&plan, 2, Fault::None);
        assert_eq!(code, want, "{text}");
    }
}

#[test]
fn the_report_is_written_for_good_runs_and_bad() {
    let folder = tempfile::tempdir().unwrap();
    for (name, fault, code, errors) in [("good", Fault::None, 0, 0), ("bad", Fault::Fails, 3, 1)] {
        let path = folder.path().join(format!("{name}.json"));
        let line = format!("-b 8 -e 64 -f 2 -n 2 -I 1 -J {}", path.display());
        let (got, text) = run_plan(&plan(ALL_REDUCE, &line), 2, fault);
        assert_eq!(got, code, "{text}");
        assert!(text.starts_with(&format!("# Writing JSON output to {}\n", path.display())), "{text}");
        let value: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(value["errors"].as_array().unwrap().len(), errors);
        assert_eq!(value["config"]["devices"].as_array().unwrap().len(), 2);
        assert_eq!(value["results"].as_array().unwrap().len(), if errors == 0 { 4 } else { 0 });
        assert!(value.get("env").is_none());
    }
}
