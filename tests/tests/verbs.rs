//! What links between processes do on a machine that belongs to the test: an interface that goes down, little memory that
//! may be locked, and the perf tools with checking on. `tests/soft-rdma` runs it in a guest.

use std::process::Command;
use std::time::Duration;

use paceline_tests::process::{Plan, Process, agree, now, paceline, tool};
use paceline_tests::{is_asked_for, process_links};

const TIMEOUT: Duration = Duration::from_millis(2500);
/// What finding out who is to blame, and a busy machine, may add.
const SLACK: Duration = Duration::from_millis(4000);

/// The interface that the ranks' packets take.
const INTERFACE: &str = "eth0";

/// An ordinary user, who may lock no more memory than the limit says, and how much that is.
const POOR: [&str; 7] =
    ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "prlimit", "--memlock=65536:65536", "--"];

/// Whether this machine is a guest that was made for the test; if not, says that what needs one is skipped.
fn is_guest() -> bool {
    let is_guest = is_asked_for("PACELINE_TEST_GUEST");
    if !is_guest {
        eprintln!("skipped: it takes a machine of its own (cargo run -p paceline-soft-rdma -- test)");
    }
    is_guest
}

fn set_interface(state: &str) {
    let status = Command::new("ip").args(["link", "set", INTERFACE, state]).status().expect("the guest has ip");
    assert!(status.success(), "ip link set {INTERFACE} {state}: {status}");
}

/// The interface, down as long as this lives.
struct Down;

impl Down {
    fn take() -> Down {
        set_interface("down");
        Down
    }
}

impl Drop for Down {
    fn drop(&mut self) {
        set_interface("up");
    }
}

/// Runs a tool's ranks by the launcher, as `words` in front of it say.
fn launch(words: &[&str], links: &str, size: usize, tool_and_arguments: &[&str]) -> Process {
    let program = tool(tool_and_arguments[0]);
    let launcher = paceline();
    let size = size.to_string();
    let mut all = words.to_vec();
    all.extend([launcher.to_str().unwrap(), "launch", "-n", &size, "--", program.to_str().unwrap()]);
    all.extend(&tool_and_arguments[1..]);
    let mut command = Command::new(all[0]);
    command.args(&all[1..]).env("PACELINE_LINKS", links).env("PACELINE_TIMEOUT", "30");
    Process::start(command)
}

/// Every rank has its error in time, and once the interface is up again the next job works.
#[test]
fn an_interface_that_goes_down_ends_the_call() {
    if !is_guest() {
        return;
    }
    if !process_links().contains(&"rdma") {
        return eprintln!("skipped: packets of other links stay within the host, whatever the interface does");
    }
    for size in [2, 4] {
        let plan = Plan::new(size, "join churn=30").variable("PACELINE_LINKS", "rdma");
        let mut job = plan.variable("PACELINE_TIMEOUT", format!("{}ms", TIMEOUT.as_millis())).all();
        job.hear_all(&["churning"]);
        let down = now();
        let interface = Down::take();
        // A rank whose request fails before the kernel has told the device of it can only guess. One whose request is still being
        // repeated, since the port may come up again, reaches its deadline, and the log says that the port is down.
        let hints = [format!("ip link set {INTERFACE} up"), "paceline doctor".to_owned(), "waited 2.5 s".to_owned()];
        for rank in 0..size {
            let error = job.ranks[rank].hear(&["error", "unharmed"]);
            let took = error.at.saturating_sub(down);
            println!("rank {rank} of {size}, after {took:.1?}: {}", error.text());
            let is_named = !error.peers().is_empty() && hints.iter().any(|hint| error.text().contains(hint));
            let is_sound = error.word == "error" && is_named && took < TIMEOUT + SLACK;
            assert!(is_sound, "rank {rank} of {size} after {took:?}: {error:?}\n{}", job.report());
        }
        drop(interface);
    }
    agree(2, &Plan::new(2, "join calls result").variable("PACELINE_LINKS", "rdma").all().succeed());
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
    let mut running = launch(&POOR, "rdma,tcp", 2, &["all_reduce_perf", "-b", "8", "-e", "64K", "-f", "16"]);
    let (status, _) = running.end();
    let report = running.report();
    assert!(status.success() && report.contains("[tcp]"), "{report}");
    assert!(running.complaints().contains("ulimit -l"), "no line says why it isn't rdma: {report}");
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
            let mut running =
                launch(&[], links, size, &[tool, "-b", "8", "-e", "512K", "-f", "16", "-n", "3", "-w", "1", "-c", "1"]);
            let (status, _) = running.end();
            let report = running.report();
            let is_sound = status.success() && report.contains("# Out of bounds values : 0 OK");
            assert!(is_sound && report.contains(&format!("[{links}]")), "{tool}, {size} ranks on {links}: {report}");
        }
    }
}

/// Between registered buffers the device carries every byte from where it lies to where it belongs.
#[cfg(feature = "rdma")]
#[test]
fn a_message_between_registered_buffers_is_never_copied() {
    use std::sync::Barrier;

    use paceline_tests::is_link_asked_for;
    use paceline_tests::world::{Wire, on_each};
    use paceline_transport::rdma::Traffic;

    if !is_guest() || !is_link_asked_for("rdma") {
        return eprintln!("skipped: only rdma carries bytes from memory to memory");
    }
    const WORDS_FIRST: usize = 32 << 10;
    let bytes: usize = if is_asked_for("PACELINE_BIG") { 1 << 30 } else { 64 << 20 };
    let meeting = Barrier::new(2);
    on_each(Wire::Rdma, 2, |comm| {
        let mut buffer = comm.alloc::<u64>(bytes / 8).unwrap();
        let carry = |buffer: &mut [u64]| match comm.rank() {
            0 => comm.send(buffer, 1).unwrap(),
            _ => comm.recv(buffer, 0).unwrap(),
        };
        // Registering goes on beside the first messages. Both ranks are threads here and see the same counters; rank 0 begins
        // the next message only when rank 1 has looked.
        let since = std::time::Instant::now();
        loop {
            meeting.wait();
            let before = Traffic::so_far();
            meeting.wait();
            carry(&mut buffer[..WORDS_FIRST]);
            meeting.wait();
            if Traffic::so_far().through_slots_since(&before) == 0 {
                break;
            }
            assert!(since.elapsed() < Duration::from_secs(30), "the memory is never registered");
        }
        let word = |place: usize| (place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 1;
        if comm.rank() == 0 {
            buffer.iter_mut().enumerate().for_each(|(place, found)| *found = word(place));
        }
        meeting.wait();
        let before = Traffic::so_far();
        meeting.wait();
        carry(&mut buffer);
        meeting.wait();
        let after = Traffic::so_far();
        assert_eq!((after.through_slots_since(&before), after.placed - before.placed), (0, bytes as u64));
        assert!(buffer.iter().enumerate().all(|(place, found)| *found == word(place)), "the message is garbled");
        println!("{bytes} bytes, none of them through slots");
        // What leaving writes is not counted above.
        meeting.wait();
    });
}

/// A test that fails, so that it shows that failures come back from a guest.
#[test]
fn a_planted_failure() {
    assert!(!is_asked_for("PACELINE_TEST_PLANTED"), "this failure was planted");
}
