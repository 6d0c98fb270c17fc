//! What links between processes do on a machine that belongs to the test, whose interfaces and devices it may take away.
//! `tests/soft-rdma` runs it in a guest.

mod hosts;
mod interface;
mod locked;
#[cfg(feature = "rdma")]
mod placed;
mod ports;
mod removal;
mod switches;

use std::process::Command;

use paceline_tests::process::{Process, paceline, tool};
use paceline_tests::{is_asked_for, process_links};

/// Whether this machine is a guest that was made for the test; if not, says that what needs one is skipped.
fn is_guest() -> bool {
    let is_guest = is_asked_for("PACELINE_TEST_GUEST");
    if !is_guest {
        eprintln!("skipped: it takes a machine of its own (cargo run -p paceline-soft-rdma -- test)");
    }
    is_guest
}

/// Where a tool lies.
fn path_of(name: &str) -> String {
    tool(name).to_str().expect("the guest's paths are text").to_owned()
}

/// Runs ranks by the launcher, as `words` in front of it say.
fn launch(words: &[&str], links: &str, size: usize, command: &[&str]) -> Process {
    let launcher = paceline();
    let size = size.to_string();
    let mut all = words.to_vec();
    all.extend([launcher.to_str().unwrap(), "launch", "-n", &size, "--"]);
    all.extend(command);
    let mut command = Command::new(all[0]);
    command.args(&all[1..]).env("PACELINE_LINKS", links).env("PACELINE_TIMEOUT", "30");
    Process::start(command)
}

#[test]
fn the_tools_check_their_results() {
    if !is_guest() {
        return;
    }
    let tools = [
        "all_reduce_perf",
        "all_gather_perf",
        "reduce_scatter_perf",
        "broadcast_perf",
        "reduce_perf",
        "alltoall_perf",
        "alltoallv_perf",
        "gather_perf",
        "scatter_perf",
        "sendrecv_perf",
        "hypercube_perf",
    ];
    for links in process_links() {
        for (turn, tool) in tools.into_iter().enumerate() {
            let size = [2, 4][turn % 2];
            let command = [&path_of(tool), "-b", "8", "-e", "512K", "-f", "16", "-n", "3", "-w", "1", "-c", "1"];
            let mut running = launch(&[], links, size, &command);
            let (status, _) = running.end();
            let report = running.report();
            let is_sound = status.success() && report.contains("# Out of bounds values : 0 OK");
            assert!(is_sound && report.contains(&format!("[{links}]")), "{tool}, {size} ranks on {links}: {report}");
        }
    }
}

/// A test that fails, so that it shows that failures come back from a guest.
#[test]
fn a_planted_failure() {
    assert!(!is_asked_for("PACELINE_TEST_PLANTED"), "this failure was planted");
}
