//! A device that is taken out of the machine under running ranks.

use std::process::Command;
use std::time::Duration;

use paceline_tests::process::now;

use crate::hosts::{Hosts, Strike, are_possible};

const NOTICED: Duration = Duration::from_secs(8);

/// Its interface goes, and the port with it: both ranks have their error, which names the device, and end in order.
#[test]
fn a_device_that_is_removed_ends_the_call() {
    if !are_possible() {
        return;
    }
    let hosts = Hosts::make(1);
    // Where nothing was under way that could fail, the deadline ends the call.
    let plan = hosts.plan("join churn=30").variable("PACELINE_TIMEOUT", "5").variable("PACELINE_RDMA_TIMEOUT", "15");
    let mut job = plan.all();
    job.hear_all(&["churning"]);
    let struck = now();
    hosts.strike(0, 0, Strike::Remove);
    for rank in 0..2 {
        let error = job.ranks[rank].hear(&["error", "unharmed"]);
        let took = error.at.saturating_sub(struck);
        println!("rank {rank} after {took:.1?}: {}", error.text());
        let says = |words: &str| error.text().contains(words);
        // Either the rank whose device it was has noticed first, or the other, which gets no answer any more.
        let is_gone = says(&hosts.port(0, 0)) && (says("was removed") || says("is down"));
        let is_silent = says(&format!("{} to {}", hosts.address(1, 0), hosts.address(0, 0))) && says("error 12");
        let names_it = is_gone || is_silent;
        let is_sound = error.word == "error" && names_it && took < NOTICED;
        assert!(is_sound, "rank {rank} after {took:?}: {error:?}\n{}", job.report());
    }
    for rank in 0..2 {
        let (status, _) = job.ranks[rank].end();
        assert_eq!(status.code(), Some(3), "rank {rank} does not end by its error:\n{}", job.report());
    }
}

/// `rdma link delete` waits until nobody uses the device, or tells its users: either way ranks end in order, and then it is
/// gone.
#[test]
fn a_device_that_is_deleted_does_not_outlive_its_ranks() {
    if !are_possible() {
        return;
    }
    let hosts = Hosts::make(1);
    let device = hosts.port(0, 0);
    let mut job = hosts.plan("join traffic=100000 calls result").variable("PACELINE_TIMEOUT", "20").all();
    job.hear_all(&["joined"]);
    let mut deleting = Command::new("rdma").args(["link", "delete", &device]).spawn().expect("the guest has rdma");
    for rank in 0..2 {
        let said = job.ranks[rank].hear(&["error", "result"]);
        println!("rank {rank}: {} {}", said.word, said.rest);
        assert!(said.word == "result" || said.text().contains(&device), "{said:?}\n{}", job.report());
        let (status, _) = job.ranks[rank].end();
        assert!(matches!(status.code(), Some(0 | 3)), "rank {rank}: {status}\n{}", job.report());
    }
    assert!(deleting.wait().expect("it is a child").success(), "{device} could not be deleted");
    assert!(!std::path::Path::new("/sys/class/infiniband").join(&device).exists(), "{device} is still there");
}
