//! The `*_perf` binaries as real processes: alone, under `paceline launch`, and with torchrun's variables.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

const ALL: [(&str, &str); 11] = [
    ("all_reduce_perf", env!("CARGO_BIN_EXE_all_reduce_perf")),
    ("all_gather_perf", env!("CARGO_BIN_EXE_all_gather_perf")),
    ("reduce_scatter_perf", env!("CARGO_BIN_EXE_reduce_scatter_perf")),
    ("broadcast_perf", env!("CARGO_BIN_EXE_broadcast_perf")),
    ("reduce_perf", env!("CARGO_BIN_EXE_reduce_perf")),
    ("alltoall_perf", env!("CARGO_BIN_EXE_alltoall_perf")),
    ("alltoallv_perf", env!("CARGO_BIN_EXE_alltoallv_perf")),
    ("gather_perf", env!("CARGO_BIN_EXE_gather_perf")),
    ("scatter_perf", env!("CARGO_BIN_EXE_scatter_perf")),
    ("sendrecv_perf", env!("CARGO_BIN_EXE_sendrecv_perf")),
    ("hypercube_perf", env!("CARGO_BIN_EXE_hypercube_perf")),
];
const SMALL: &str = "-b 4 -e 16K -f 16 -n 3 -T 60";

fn run(program: &str, line: &str) -> Output {
    Command::new(program).args(line.split_whitespace()).stdin(Stdio::null()).output().unwrap()
}

fn launch(n: usize, program: &str, line: &str) -> Output {
    run(env!("CARGO_BIN_EXE_paceline"), &format!("launch -n {n} --timeout 120 --no-prefix -- {program} {line}"))
}

fn rows(out: &Output) -> Vec<Vec<String>> {
    String::from_utf8_lossy(&out.stdout)
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| line.split_whitespace().map(str::to_string).collect())
        .collect()
}

fn check(out: &Output, rows_wanted: usize) {
    assert!(out.status.success(), "{out:?}");
    let rows = rows(out);
    assert_eq!(rows.len(), rows_wanted, "{out:?}");
    assert!(rows.iter().all(|row| row.len() == 13 && row[8] == "0" && row[12] == "0"), "{rows:?}");
}

#[test]
fn threads_of_one_process() {
    for (_, program) in ALL {
        check(&run(program, &format!("{SMALL} -g 2")), 4);
    }
    check(&run(ALL[0].1, &format!("{SMALL} -t 2 -g 2 -d half -o all")), 24);
}

#[test]
fn processes_under_launch() {
    for (_, program) in ALL {
        check(&launch(2, program, SMALL), 4);
    }
}

#[test]
fn processes_times_threads() {
    let out = launch(2, ALL[0].1, &format!("{SMALL} -g 2"));
    check(&out, 4);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(text.matches("#  Rank ").count(), 4, "only the main rank prints, and it names all:\n{text}");
    assert_eq!(text.matches("Collective test concluded").count(), 1, "{text}");
}

#[test]
fn torchrun_variables() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let rank = |rank: usize| {
        let mut command = Command::new(ALL[1].1);
        command.args(SMALL.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", "2").env("LOCAL_RANK", rank.to_string());
        command.env("LOCAL_WORLD_SIZE", "2").env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        command.spawn().unwrap()
    };
    let (first, second) = (rank(0), rank(1));
    check(&first.wait_with_output().unwrap(), 4);
    let second = second.wait_with_output().unwrap();
    assert!(second.status.success() && second.stdout.is_empty(), "{second:?}");
}

#[test]
fn every_process_knows_the_outcome() {
    let script = "NCCL_TESTS_MIN_BW=100000 \"$0\" -b 8 -e 8 -n 1; echo code $?";
    let out = Command::new(env!("CARGO_BIN_EXE_paceline"))
        .args(["launch", "-n", "2", "--", "sh", "-c", script, ALL[0].1])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.contains("[0] code 7") && text.contains("[1] code 7"), "{text}");
    assert!(text.contains("# Avg bus bandwidth    : ") && text.contains(" FAILED"), "{text}");
}

#[test]
fn ranks_that_were_started_differently_say_so() {
    let script = "\"$0\" -b 8 -e 64 -n $((PACELINE_RANK + 1)); echo code $?";
    let out = Command::new(env!("CARGO_BIN_EXE_paceline"))
        .args(["launch", "-n", "2", "--", "sh", "-c", script, ALL[0].1])
        .output()
        .unwrap();
    let (text, complaints) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(text.contains("[0] code 6") && text.contains("[1] code 6"), "{text}\n{complaints}");
    assert!(complaints.contains("rank 1 on ") && complaints.contains("other options"), "{complaints}");
}

#[test]
fn the_table_is_nccl_tests_table() {
    let out = run(ALL[0].1, "-b 1K -e 1K -g 2 -n 2");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let lines: Vec<&str> = text.split('\n').collect();
    assert!(lines[0].starts_with("# paceline-tools version "), "{text}");
    assert_eq!(lines[1], "# Collective test starting: all_reduce_perf");
    assert!(
        lines[2].starts_with("# nThread 1 nGpus 2 minBytes 1024 maxBytes 1024 step: 1048576(bytes) warmup iters: 1 ")
    );
    assert_eq!(lines[3..5], ["#", "# Using devices"]);
    assert!(lines[5].starts_with("#  Rank  0 Group  0 Pid ") && lines[5].contains(" device  0 ["), "{text}");
    assert!(lines[6].starts_with("#  Rank  1 Group  0 Pid ") && lines[6].contains(" device  1 ["), "{text}");
    assert!(lines[11].starts_with("        1024           256     float     sum      -1  "), "{text}");
    assert_eq!(lines[12], "# Out of bounds values : 0 OK");
    assert!(lines[13].starts_with("# Avg bus bandwidth    : ") && lines[13].ends_with(' '), "{text}");
    assert_eq!(lines[14..], ["#", "# Collective test concluded: all_reduce_perf", "#", "", ""]);
}

#[test]
fn senseless_lines_have_nccl_tests_codes() {
    for (line, code) in [("--bogus", 6), ("-b 9X", 255), ("-b 2 -e 1", 255), ("-G 3", 5), ("-o xor", 6), ("-h", 0)] {
        let out = run(ALL[0].1, line);
        assert_eq!(out.status.code(), Some(code), "{line}: {out:?}");
        assert_eq!(out.stderr.is_empty(), code == 0, "{line}: {out:?}");
    }
}

/// Runs rows for ever on three ranks, sends rank 1 a signal after the first row, and returns the launcher's exit code and
/// everybody's complaints.
fn with_a_signal(signal: Signal, line: &str) -> (i32, String) {
    let words = format!("launch -n 3 --timeout 120 --grace 1 -- {} -b 8 -e 1M -f 8 -N 0 {line}", ALL[0].1);
    let mut job = Command::new(env!("CARGO_BIN_EXE_paceline"))
        .args(words.split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(job.stdout.take().unwrap()).lines().map(Result::unwrap);
    let device = lines.by_ref().find(|line| line.contains("#  Rank  1 ")).expect("a line for rank 1");
    let pid: i32 = device.split_whitespace().skip_while(|word| *word != "Pid").nth(1).unwrap().parse().unwrap();
    lines.by_ref().find(|line| line.contains(" float ")).expect("a row");
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    lines.for_each(drop);
    let mut complaints = String::new();
    job.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
    (job.wait().unwrap().code().unwrap(), complaints)
}

#[test]
fn a_killed_rank_is_named_by_the_others() {
    let (code, complaints) = with_a_signal(Signal::KILL, "");
    assert_eq!(code, 137, "{complaints}");
    assert!(complaints.contains("rank 1 (pid ") && complaints.contains("killed by SIGKILL"), "{complaints}");
    assert!(complaints.contains("ranks 0, 2: exit code 3"), "{complaints}");
    for rank in ["[0] all_reduce_perf: rank 0 on ", "[2] all_reduce_perf: rank 2 on "] {
        let line = complaints.lines().find(|line| line.starts_with(rank)).unwrap_or_else(|| panic!("{complaints}"));
        assert!(line[rank.len()..].contains("rank 1"), "{line}");
    }
}

#[test]
fn a_stopped_rank_runs_into_the_limit_of_a_test() {
    let (code, complaints) = with_a_signal(Signal::STOP, "-T 1");
    assert_eq!(code, 4, "{complaints}");
    assert!(complaints.contains(": Test timeout (1s) all_reduce_perf"), "{complaints}");
    assert!(complaints.contains("failed first: it ended with exit code 4"), "{complaints}");
}
