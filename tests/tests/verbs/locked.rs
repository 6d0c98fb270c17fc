//! Little memory that may be locked.

use paceline_tests::process::Plan;
use paceline_tests::process_links;

use crate::{is_guest, launch, path_of};

/// An ordinary user, who may lock no more memory than the limit says, and how much that is.
const POOR: [&str; 7] = limited("--memlock=65536:65536");
/// One who may lock what a link needs, and little beside it.
const MODEST: [&str; 7] = limited("--memlock=7340032:7340032");

const fn limited(limit: &'static str) -> [&'static str; 7] {
    ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "prlimit", limit, "--"]
}

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

/// Where a link can be had, but nothing can be lent to it, large messages are copied, and the log says so once.
#[test]
fn a_limit_that_leaves_nothing_to_lend_leaves_copying() {
    if !is_guest() || !process_links().contains(&"rdma") {
        return eprintln!("skipped: only rdma locks memory");
    }
    let command = [&path_of("all_reduce_perf"), "-b", "1M", "-e", "4M", "-f", "4", "-n", "2", "-w", "1", "-c", "1"];
    let mut running = launch(&MODEST, "rdma", 2, &command);
    let (status, _) = running.end();
    let report = running.report();
    assert!(status.success() && report.contains("# Out of bounds values : 0 OK"), "{report}");
    let complaints = running.complaints();
    let said = complaints.matches("copied from now on").count();
    assert!(said == 2 && complaints.contains("ulimit -l"), "said {said} times by two ranks: {report}");
}
