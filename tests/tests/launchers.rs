//! Whole communicators of ranks that launchers start: paceline's own, Open MPI's, MPICH's, and torchrun's variables; and
//! the benchmarks under all of them.

use std::net::TcpListener;

use paceline_tests::process::{Plan, Process, Said, agree, found, paceline, tool};

const ALL: &str = "join calls result";

/// All that the ranks of a launcher said, after a good end.
fn succeed(mut launcher: Process) -> Vec<Said> {
    let (status, said) = launcher.end();
    assert!(status.success(), "{status}\n{}", launcher.report());
    said
}

fn check(launcher: &[&str], sizes: &[usize]) {
    for size in sizes {
        let number = size.to_string();
        let words: Vec<&str> = launcher.iter().map(|word| if *word == "N" { &number } else { *word }).collect();
        agree(*size, &succeed(Plan::new(*size, ALL).launched_by(&words)));
    }
}

#[test]
fn paceline_launch() {
    let program = paceline();
    check(&[program.to_str().unwrap(), "launch", "-n", "N", "--"], &[1, 2, 3, 4, 7, 8]);
}

#[test]
fn open_mpi() {
    if found("mpirun.openmpi") {
        check(&["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "N"], &[1, 2, 4, 7]);
    }
}

#[test]
fn mpich() {
    if found("mpirun.mpich") {
        check(&["mpirun.mpich", "-n", "N"], &[1, 2, 4, 7]);
    }
}

/// As torchrun starts them, its own store on MASTER_PORT.
#[test]
fn torchrun_variables() {
    for size in [1, 2, 3, 8] {
        let store = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = usize::from(store.local_addr().unwrap().port());
        let plan = Plan::without_a_place(size, ALL).variable("MASTER_ADDR", "localhost").variable("MASTER_PORT", port);
        let rank = |rank| {
            let numbers = [("RANK", rank), ("WORLD_SIZE", size), ("LOCAL_RANK", rank), ("LOCAL_WORLD_SIZE", size)];
            plan.with_numbers(rank, numbers)
        };
        let ranks: Vec<Process> = (0..size).map(rank).collect();
        agree(size, &ranks.into_iter().flat_map(succeed).collect::<Vec<_>>());
    }
}

/// A rank that fails ends the job; the launcher says which was first, and the others said whom they lost.
#[test]
fn paceline_launch_names_the_first_failure() {
    let program = paceline();
    let plan = Plan::new(3, "join calls 1:kill churn=30");
    let mut launcher = plan.launched_by(&[program.to_str().unwrap(), "launch", "-n", "3", "--"]);
    let (status, said) = launcher.end();
    let errors: Vec<&Said> = said.iter().filter(|said| said.word == "error").collect();
    assert!(!status.success());
    assert!(errors.iter().all(|error| error.peers() == [1]), "{}", launcher.report());
    let complaints = launcher.complaints();
    assert!(complaints.contains("rank 1 (pid ") && complaints.contains("killed by SIGKILL"), "{complaints}");
}

/// The rows of a table of the `*_perf` tools: its lines that aren't comments, as words.
fn rows(output: &[String]) -> Vec<Vec<String>> {
    let is_row = |line: &&String| !line.starts_with('#') && !line.trim().is_empty();
    output.iter().filter(is_row).map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// What an output of nccl-tests' form must hold: every size, no wrong elements, and an average.
fn check_table(case: &str, output: &[String], sizes: usize) {
    let rows = rows(output);
    assert_eq!(rows.len(), sizes, "{case}: {output:#?}");
    for row in &rows {
        assert_eq!(row.len(), 13, "{case}: {row:?}");
        let times = [5, 9].map(|column| row[column].parse::<f64>().unwrap());
        assert!(times.iter().all(|time| 0.0 < *time), "{case}: {row:?}");
        assert_eq!([row[8].as_str(), row[12].as_str()], ["0", "0"], "{case}: wrong elements in {row:?}");
    }
    let average = output.iter().find_map(|line| line.strip_prefix("# Avg bus bandwidth    : "));
    assert!(average.is_some_and(|average| average.trim().parse::<f64>().is_ok()), "{case}: {output:#?}");
}

fn run(command: &[&str]) -> Process {
    let mut started = std::process::Command::new(command[0]);
    started.args(&command[1..]).env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    Process::start(started)
}

#[test]
fn benchmarks_under_every_launcher() {
    let (program, launcher) = (tool("all_reduce_perf"), paceline());
    let (program, launcher) = (program.to_str().unwrap(), launcher.to_str().unwrap());
    let line = ["-b", "8", "-e", "1M", "-f", "8", "-n", "3", "-T", "60"];
    let launchers: [&[&str]; 4] = [
        &[],
        &[launcher, "launch", "-n", "2", "--no-prefix", "--"],
        &["mpirun.openmpi", "--oversubscribe", "-n", "2"],
        &["mpirun.mpich", "-n", "2"],
    ];
    for words in launchers {
        if words.first().is_some_and(|launcher| launcher.starts_with("mpirun") && !found(launcher)) {
            continue;
        }
        let threads: &[&str] = if words.is_empty() { &["-g", "2"] } else { &[] };
        let command = [words, &[program], &line, threads].concat();
        let mut running = run(&command);
        let (status, _) = running.end();
        assert!(status.success(), "{status}\n{}", running.report());
        check_table(&format!("{command:?}"), running.other_output(), 6);
    }
}

#[test]
fn other_benchmarks_and_senseless_options() {
    for name in ["alltoallv_perf", "gather_perf", "sendrecv_perf", "hypercube_perf"] {
        let program = tool(name);
        let mut running = run(&[program.to_str().unwrap(), "-b", "64", "-e", "64K", "-f", "32", "-n", "2", "-g", "2"]);
        let (status, _) = running.end();
        assert!(status.success(), "{name}: {status}\n{}", running.report());
        check_table(name, running.other_output(), 3);
    }
    let program = tool("all_reduce_perf");
    let mut running = run(&[program.to_str().unwrap(), "--no-such-option"]);
    let (status, _) = running.end();
    assert!(!status.success() && running.complaints().contains("--no-such-option"), "{}", running.report());
}

/// A benchmark that runs for ever, one of whose ranks is killed: the launcher names it, the other rank whom it lost.
#[test]
fn a_benchmark_whose_rank_is_killed_ends() {
    let (program, launcher) = (tool("all_reduce_perf"), paceline());
    let script =
        format!("test $PACELINE_RANK = 0 || echo \"@ begun 1 0 $$\"; exec {} -b 1M -e 1M -N 0", program.display());
    let mut running = run(&[launcher.to_str().unwrap(), "launch", "-n", "2", "--", "sh", "-c", &script]);
    let pid: i32 = running.hear(&["begun"]).rest.parse().unwrap();
    running.hear_line("float");
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::KILL).unwrap();
    let (status, _) = running.end();
    assert!(!status.success(), "{}", running.report());
    let complaints = running.complaints();
    assert!(complaints.contains("rank 1 (pid ") && complaints.contains("killed by SIGKILL"), "{complaints}");
    assert!(complaints.contains("lost rank 1 (host "), "{complaints}");
}
