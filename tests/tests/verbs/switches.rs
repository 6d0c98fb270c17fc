//! A switch between that takes shorter packets than both ends' ports.

use crate::hosts::{Hosts, Strike, are_possible};

/// Small packets pass and large ones don't, which only trying shows; the error says what the matter is.
#[test]
fn a_switch_with_a_smaller_mtu_is_found_out_at_connecting() {
    if !are_possible() {
        return;
    }
    let hosts = Hosts::make(1);
    hosts.strike(0, 0, Strike::Shorten);
    let mut job = hosts.plan("join calls").all();
    for rank in 0..2 {
        let error = job.ranks[rank].hear(&["error", "joined"]);
        println!("rank {rank}: {}", error.text());
        let says = |words: &str| error.text().contains(words);
        let is_sound = error.word == "error" && says("MTU") && says("4096 bytes per packet") && says("not one of 8192");
        assert!(is_sound && says(&hosts.address(0, 0)), "{error:?}\n{}", job.report());
    }
}
