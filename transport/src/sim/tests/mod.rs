//! What the simulated network promises, each promise tried.

mod driving;
mod faults;
mod model;
mod ports;
mod scale;
mod wires;

use std::time::Duration;

use super::{Jitter, LinkProfile, SimLink, SimNetwork, SimOptions};
use crate::clock::Time;
use crate::link::{Channel, Stamp};

const STAMP: Stamp = Stamp([1, 2]);

fn us(micros: u64) -> Time {
    Time(micros * 1000)
}

/// Two ranks on wires of 10 us and 1 GB/s, with options changed by `change`.
fn pair(change: impl FnOnce(&mut SimOptions)) -> (SimNetwork, SimLink, SimLink) {
    let mut options = SimOptions::new(2, 7);
    change(&mut options);
    let network = SimNetwork::new(options);
    let (a, b) = (network.link(0, 1), network.link(1, 0));
    (network, a, b)
}

/// Sends as much of a message as is accepted now, and answers how much that was.
fn send_all(link: &mut SimLink, channel: u64, message: &[u8]) -> usize {
    let mut sent = 0;
    while sent < message.len() {
        match link.send(Channel(channel), STAMP, &message[sent..]).expect("the link is whole") {
            Some(bytes) => sent += bytes,
            None => break,
        }
    }
    sent
}

/// Reads whatever is here, as (channel, bytes of one frame).
fn read_here(link: &mut SimLink) -> Vec<(u64, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some(head) = link.head().expect("the link is whole") {
        assert_eq!(head.left, head.bytes.len(), "a frame is here in part: read it otherwise");
        frames.push((head.channel.0, head.bytes.to_vec()));
        let bytes = head.bytes.len();
        link.advance(bytes);
    }
    frames
}

/// Jumps from event to event until none is left.
fn let_everything_happen(network: &SimNetwork) {
    while let Some(next) = network.next_event() {
        network.advance_to(next);
    }
}

/// A wire of 10 us with uniform jitter of up to `most`.
fn jittery(most: Duration) -> LinkProfile {
    LinkProfile { jitter: Jitter::Uniform(most), ..LinkProfile::default() }
}
