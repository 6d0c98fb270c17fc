//! Processes that real launchers start meet each other.
//!
//! The test starts the launcher, the launcher starts this test binary again, once per rank, to run the one test that is
//! a rank. A launcher that isn't installed is skipped, in words.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use paceline_transport::rendezvous::{Setup, exchange};
use paceline_transport::{Environment, Rendezvous};

const ROLE: &str = "PACELINE_TEST_ROLE";

/// Not a test by itself: what each started process runs.
#[test]
fn as_a_rank() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let setup = Setup::from_env(&Environment::from_process()).unwrap_or_else(|error| leave("setup", &error));
    let kind = match &setup.how {
        Rendezvous::Local(_) => "local",
        Rendezvous::Tcp(_) => "tcp",
        Rendezvous::File(_) => "file",
        Rendezvous::Pmi(place) if place.one_host => "pmi, one host",
        Rendezvous::Pmi(_) => "pmi, several hosts",
        _ => "other",
    };
    if role == "absent" && setup.rank == 1 {
        // Stays alive, so that the launcher doesn't end the others, until they have given up.
        let until = Instant::now() + Duration::from_millis(2500);
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            std::thread::park_timeout(left);
        }
        return;
    }
    let rounds = if role == "twice" { 2 } else { 1 };
    for round in 0..rounds {
        let mine = format!("rank {} round {round}", setup.rank);
        let exchanged = exchange(&setup, mine.as_bytes(), Instant::now() + setup.init_timeout);
        let exchanged = exchanged.unwrap_or_else(|error| leave("exchange", &error));
        let wanted: Vec<_> = (0..setup.size).map(|rank| format!("rank {rank} round {round}").into_bytes()).collect();
        assert_eq!(exchanged.entries, wanted);
        println!("\nRESULT {} of {} by {kind}: job {:02x?}", setup.rank, setup.size, exchanged.job);
    }
}

/// Ends in good order, or launchers would end the other ranks before they have spoken.
fn leave(doing: &str, error: &dyn std::fmt::Display) -> ! {
    println!("\nRESULT {doing} failed: {error}");
    std::process::exit(0)
}

/// The lines that the ranks wrote, in order; `None` if the launcher isn't installed.
fn launch(launcher: &[&str], role: &str, variables: &[(&str, &str)]) -> Option<Vec<String>> {
    let program = launcher[0];
    let installed = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|directory| directory.join(program).is_file()));
    if !installed {
        eprintln!("skipped: {program} not found");
        return None;
    }
    let output = Command::new(program)
        .args(&launcher[1..])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "as_a_rank", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("PACELINE_INIT_TIMEOUT", "10")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{launcher:?}: {}\n{text}\n{errors}", output.status);
    // Another rank may have begun a line.
    let results = text.lines().filter_map(|line| line.split_once("RESULT "));
    let mut lines: Vec<_> = results.map(|(_, result)| result.to_owned()).collect();
    lines.sort();
    Some(lines)
}

/// Starts ranks that are to meet `rounds` times by the way `kind`.
fn check(launcher: &[&str], role: &str, variables: &[(&str, &str)], size: usize, kind: &str) {
    let Some(lines) = launch(launcher, role, variables) else { return };
    let rounds = if role == "twice" { 2 } else { 1 };
    assert_eq!(lines.len(), size * rounds, "{launcher:?}: {lines:#?}");
    let mut jobs = std::collections::BTreeSet::new();
    for (i, line) in lines.iter().enumerate() {
        let (start, job) = line.split_once(": job ").unwrap_or_else(|| panic!("{launcher:?}: {lines:#?}"));
        assert_eq!(start, format!("{} of {size} by {kind}", i / rounds));
        jobs.insert(job);
    }
    assert_eq!(jobs.len(), rounds, "{lines:#?}");
}

const OPEN_MPI: &str = "mpirun.openmpi --oversubscribe -n";
const MPICH: &str = "mpirun.mpich -n";

/// `launcher`'s command line with the number of ranks.
fn line<'a>(launcher: &'a str, size: &'a str) -> Vec<&'a str> {
    launcher.split(' ').chain([size]).collect()
}

#[test]
fn open_mpi() {
    check(&line(OPEN_MPI, "4"), "once", &[], 4, "local");
    check(&line(OPEN_MPI, "2"), "twice", &[("PACELINE_TOKEN", "a token of mine")], 2, "local");
    let file = std::env::temp_dir().join(format!("paceline-launchers-{}", std::process::id()));
    check(&line(OPEN_MPI, "3"), "twice", &[("PACELINE_RENDEZVOUS", file.to_str().unwrap())], 3, "file");
    assert!(!file.exists());
}

#[test]
fn mpich() {
    check(&line(MPICH, "4"), "once", &[], 4, "pmi, one host");
    check(&line(MPICH, "2"), "twice", &[("PACELINE_TOKEN", "a token of mine")], 2, "pmi, one host");
}

/// Two proxies that believe to be on hosts of their own.
#[test]
fn mpich_on_several_hosts() {
    let several = ["mpirun.mpich", "-launcher", "fork", "-hosts", "127.0.0.1:1,localhost:2", "-n", "3"];
    check(&several, "twice", &[], 3, "pmi, several hosts");
}

#[test]
fn mpich_by_port() {
    let port = ["mpirun.mpich", "-pmi-port", "-n", "3"];
    check(&port, "twice", &[], 3, "pmi, one host");
}

#[test]
fn a_rank_that_the_launcher_started_but_that_does_not_come_is_named() {
    for (launcher, size) in [(OPEN_MPI, "3"), (MPICH, "3")] {
        let Some(lines) = launch(&line(launcher, size), "absent", &[("PACELINE_INIT_TIMEOUT", "1")]) else { continue };
        assert_eq!(lines.len(), 2, "{lines:#?}");
        for line in lines {
            assert!(line.contains("2 of 3 ranks arrived within 1.0 s, missing rank 1 (arrived: 0 (host "), "{line}");
        }
    }
}
