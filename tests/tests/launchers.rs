//! Whole communicators of ranks that launchers start: paceline's own, Open MPI's, MPICH's, and torchrun's variables.

use std::net::TcpListener;

use paceline_tests::process::{Plan, Process, Said, agree, found, paceline};

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
