//! Whole communicators between processes of one host: every collective, and what they take of the machine.

use std::time::{Duration, Instant};

use paceline_tests::process::{Plan, Said, agree, shared_memory_bytes};
use paceline_tests::{is_asked_for, process_links};

const ALL: &str = "join calls result";

/// Every rank's links must all be of one kind.
fn check_links(size: usize, links: &str, said: &[Said]) {
    for Said { rank, rest, .. } in said.iter().filter(|said| said.word == "joined") {
        let want: Vec<_> = (0..size).map(|peer| if peer == *rank { "self" } else { links }).collect();
        assert_eq!(*rest, want.join(","), "the links of rank {rank}");
    }
}

#[test]
fn every_collective_between_processes() {
    let sizes: &[usize] = if is_asked_for("PACELINE_TEST_FEW") { &[2, 3, 4, 8] } else { &[1, 2, 3, 4, 7, 8] };
    for links in process_links() {
        for &size in sizes {
            let said = Plan::new(size, ALL).variable("PACELINE_LINKS", links).all().succeed();
            agree(size, &said);
            check_links(size, links, &said);
        }
    }
}

/// Far more ranks than cores must not starve each other. The limit is generous, but far below what spinning would take.
#[test]
fn more_ranks_than_cores() {
    for (size, links) in [(8, "shm"), (16, "shm"), (16, "tcp")] {
        let start = Instant::now();
        agree(size, &Plan::new(size, ALL).variable("PACELINE_LINKS", links).all().succeed());
        let took = start.elapsed();
        println!("{size} ranks on {links}: {took:?} from start to end");
        assert!(took < Duration::from_secs(30), "{size} ranks on {links} took {took:?}");
    }
}

#[test]
fn eight_ranks_share_less_than_64_mib() {
    let (megabyte, size) = (1 << 20, 8);
    let mut job = Plan::new(size, "join traffic=262144 hold").variable("PACELINE_LINKS", "shm").all();
    job.hear_all(&["held"]);
    let pids: Vec<u32> = job.ranks.iter().map(|rank| rank.pid()).collect();
    let bytes = shared_memory_bytes(&pids);
    println!("{size} ranks share {:.1} MiB after all_to_all of 2 MiB for each pair", bytes as f64 / megabyte as f64);
    assert!(megabyte < bytes, "{bytes} bytes: the segments were not found");
    assert!(bytes < 64 * megabyte, "{bytes} bytes");
}

/// Between calls nothing runs, and who waits for a message that isn't coming sleeps.
#[test]
fn idle_ranks_use_no_processor_time() {
    let limit = Duration::from_millis(100);
    for links in process_links() {
        let steps = "join calls barrier idle=2000 barrier blocked=2000 barrier";
        let said = Plan::new(4, steps).variable("PACELINE_LINKS", links).all().succeed();
        let used: Vec<(usize, u64)> = said
            .iter()
            .filter(|said| said.word == "used")
            .map(|said| (said.rank, said.rest.parse().unwrap()))
            .collect();
        println!("{links}: milliseconds used by each rank in 2 s of idleness, then blocked in recv: {used:?}");
        assert_eq!(used.len(), 4 + 3, "{said:?}");
        for (rank, millis) in used {
            assert!(Duration::from_millis(millis) < limit, "rank {rank} on {links} used {millis} ms in 2 s of nothing");
        }
    }
}

/// The parent goes on as if there had been no child, and so do its peers.
#[test]
fn a_fork_after_joining_changes_nothing() {
    for links in process_links() {
        for how in ["exit", "drop", "use"] {
            let steps = format!("join calls barrier fork={how} barrier calls 1:fork={how} calls result");
            agree(3, &Plan::new(3, &steps).variable("PACELINE_LINKS", links).all().succeed());
        }
    }
}
