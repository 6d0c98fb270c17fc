//! Hosts with several ports: all carry bytes, those that fail at set-up are left out, and one that fails later is named.

use std::time::Duration;

use paceline_tests::process::{agree, now};

use crate::hosts::{Hosts, Strike, are_possible};

/// Elements of f64 that each of two ranks sends the other in one call: 8 MiB.
const ELEMENTS: u64 = 1 << 20;
/// A failed port must be noticed within: seven tries of 0.13 s each (PACELINE_RDMA_TIMEOUT=15), and what a busy machine adds.
const NOTICED: Duration = Duration::from_secs(8);

#[test]
fn all_ports_carry_bytes() {
    if !are_possible() {
        return;
    }
    let hosts = Hosts::make(2);
    let sent = || [0, 1].map(|host| [0, 1].map(|port| hosts.sent_bytes(host, port)));
    let before = sent();
    agree(2, &hosts.plan(&format!("join traffic={ELEMENTS} calls result")).all().succeed());
    let after = sent();
    for (host, (before, after)) in before.iter().zip(&after).enumerate() {
        let sent = [after[0] - before[0], after[1] - before[1]];
        println!("host {host} sent {sent:?} bytes over its ports");
        // Three calls of so many elements, and a sum of twice as many.
        let total = sent[0] + sent[1];
        assert!(total > 3 * 8 * ELEMENTS, "host {host} sent {total} bytes");
        assert!(sent.iter().all(|bytes| *bytes > total / 3), "one port of host {host} does most of the work: {sent:?}");
    }
}

/// Of four ports three fail, each in its way; each is named in one line of the log, and the last carries all.
#[test]
fn ports_that_fail_at_set_up_are_left_out() {
    if !are_possible() {
        return;
    }
    let hosts = Hosts::make(4);
    hosts.strike(0, 0, Strike::Down);
    hosts.strike(0, 1, Strike::Forget);
    hosts.strike(0, 2, Strike::Unplug);
    let mut running = hosts.launch("all_reduce_perf", &["-b", "8", "-e", "256K", "-f", "32", "-n", "2", "-w", "1"]);
    let (status, _) = running.end();
    let report = running.report();
    assert!(status.success() && report.contains("# Out of bounds values : 0 OK"), "{report}");
    let log = running.complaints();
    println!("{log}");
    let lines = |words: [&str; 2]| log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count();
    // What the kernel says of a port that is down, only at its own host; of the others, both ranks.
    let is_down = format!("ip link set {} up", hosts.port(0, 0));
    assert_eq!(lines(["an RDMA port is not used", &is_down]), 1, "{log}");
    assert_eq!(lines(["is not reached over every port", "can't be found"]), 2, "{log}");
    assert_eq!(lines(["is not reached over every port", "nothing came from the peer"]), 2, "{log}");
    assert!(hosts.sent_bytes(0, 3) > 256 << 10, "{log}");
}

/// All ranks have an error that names the port and its path, and says what to look at; none hangs.
#[test]
fn a_port_that_fails_in_a_call_is_named() {
    if !are_possible() {
        return;
    }
    let hosts = Hosts::make(2);
    for strike in [Strike::Unplug, Strike::Shorten] {
        let plan =
            hosts.plan("join churn=30").variable("PACELINE_TIMEOUT", "30").variable("PACELINE_RDMA_TIMEOUT", "15");
        let mut job = plan.all();
        job.hear_all(&["churning"]);
        let struck = now();
        hosts.strike(0, 1, strike);
        for rank in 0..2 {
            let error = job.ranks[rank].hear(&["error", "unharmed"]);
            let took = error.at.saturating_sub(struck);
            println!("{strike:?}: rank {rank} after {took:.1?}: {}", error.text());
            let says = |words: &str| error.text().contains(words);
            // Whichever end noticed it first has told the other.
            let [here, there] = [0, 1].map(|host| hosts.port(host, 1) + " port 1");
            let path = [0, 1].map(|host| format!("{} to {}", hosts.address(host, 1), hosts.address(1 - host, 1)));
            let names_it = (says(&here) && says(&path[0])) || (says(&there) && says(&path[1]));
            let is_sound = error.word == "error" && names_it && says("error 12") && says("MTU") && took < NOTICED;
            assert!(is_sound, "rank {rank} after {took:?}: {error:?}\n{}", job.report());
        }
        drop(job);
        hosts.mend(1);
    }
}
