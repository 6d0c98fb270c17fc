//! Little memory that may be locked.

use paceline_tests::process::Plan;
use paceline_tests::process_links;

use crate::{is_guest, launch, path_of};

/// An ordinary user, who may lock no more memory than the limit says, and how much that is.
const POOR: [&str; 7] =
    ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "prlimit", "--memlock=65536:65536", "--"];

/// The error says what the limit is, and how to raise it.
#[test]
fn a_tiny_limit_of_locked_memory_is_named() {
    if !is_guest() || !process_links().contains(&"rdma") {
        return eprintln!("skipped: only rdma locks memory");
    }
    let plan = Plan::new(2, "join calls").variable("PACELINE_LINKS", "rdma");
    let mut job = plan.behind(|_| POOR.map(str::to_owned).into()).all();
    for rank in 0..2 {
        let error = job.ranks[rank].hear(&["error", "joined"]);
        println!("rank {rank}: {}", error.text());
        let says = |words: &str| error.text().contains(words);
        assert!(error.word == "error" && says("64 KiB") && says("ulimit -l"), "{error:?}\n{}", job.report());
    }
}

/// Where tcp is allowed, too, it is taken, and the log says why.
#[test]
fn a_tiny_limit_of_locked_memory_leaves_tcp() {
    if !is_guest() || !process_links().contains(&"rdma") {
        return eprintln!("skipped: only rdma locks memory");
    }
    let mut running = launch(&POOR, "rdma,tcp", 2, &[&path_of("all_reduce_perf"), "-b", "8", "-e", "64K", "-f", "16"]);
    let (status, _) = running.end();
    let report = running.report();
    assert!(status.success() && report.contains("[tcp]"), "{report}");
    assert!(running.complaints().contains("ulimit -l"), "no line says why it isn't rdma: {report}");
}
