//! An interface that goes down under running ranks.

use std::process::Command;
use std::time::Duration;

use paceline_tests::process::{Plan, agree, now};
use paceline_tests::process_links;

use crate::hosts::{Hosts, Strike, are_possible};
use crate::is_guest;

const TIMEOUT: Duration = Duration::from_millis(2500);
/// What finding out who is to blame, and a busy machine, may add.
const SLACK: Duration = Duration::from_millis(4000);

/// The interface that the ranks' packets take.
const INTERFACE: &str = "eth0";

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
        // repeated, since the port may come up again, reaches its deadline and says so, too.
        let hints = [format!("ip link set {INTERFACE} up"), "paceline doctor".to_owned()];
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

/// A rank that waits, and has nothing under way that could fail, reaches its deadline; its error says what has become of its
/// port.
#[test]
fn a_late_call_says_that_its_port_is_down() {
    if !are_possible() {
        return;
    }
    let hosts = Hosts::make(1);
    let port = hosts.port(1, 0);
    let cases = [(Strike::Down, format!("ip link set {port} up")), (Strike::Remove, format!("{port} was removed"))];
    for (strike, hint) in cases {
        let mut job = hosts.plan("join blocked=20000").variable("PACELINE_TIMEOUT", "1500ms").all();
        job.hear_all(&["joined"]);
        hosts.strike(1, 0, strike);
        let error = job.ranks[1].hear(&["error", "used"]);
        println!("{strike:?}: {}", error.text());
        let is_late = error.word == "error" && error.kind() == "timeout" && error.peers() == [0];
        assert!(is_late && error.text().contains(&hint), "{strike:?}: {error:?}\n{}", job.report());
        drop(job);
        if strike == Strike::Down {
            hosts.bring_up(1, 0);
        }
    }
}
