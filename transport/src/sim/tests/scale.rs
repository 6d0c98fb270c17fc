//! A thousand ranks: the simulator's own speed, and that quiet pairs cost little.

use super::*;
use crate::sim::{RankStep, run};

/// Every rank sends `n_frames` to its right neighbour and reads as many from its left, as the window allows.
fn stream(ranks: usize, n_frames: usize) -> Time {
    let mut options = SimOptions::new(ranks, 11);
    options.link = jittery(Duration::from_micros(3));
    options.window_bytes = 16 << 10;
    let network = SimNetwork::new(options);
    let mut ranks: Vec<_> = (0..ranks)
        .map(|me| {
            let mut left = network.link(me, (me + ranks - 1) % ranks);
            let mut right = network.link(me, (me + 1) % ranks);
            let (mut n_sent, mut n_read) = (0, 0);
            move |_: Time| {
                let (sent, read) = (n_sent, n_read);
                while n_sent < n_frames && right.send(Channel(0), STAMP, &[0; 1024]).unwrap().is_some() {
                    n_sent += 1;
                }
                while let Some(bytes) = left.head().unwrap().map(|head| head.bytes.len()) {
                    left.advance(bytes);
                    n_read += 1;
                }
                match (sent, read) == (n_sent, n_read) {
                    true if n_sent == n_frames && n_read == n_frames => RankStep::Done,
                    true => RankStep::Waiting(Time::NEVER),
                    false => RankStep::Moved,
                }
            }
        })
        .collect();
    run(&network, &mut ranks).unwrap()
}

#[test]
fn a_thousand_ranks_stream_side_by_side() {
    let frames = if cfg!(miri) { 4 } else { 300 };
    let ranks = if cfg!(miri) { 8 } else { 1024 };
    let end = stream(ranks, frames);
    assert!(end > us(10 + frames as u64), "{end:?}");
}

#[test]
#[ignore = "about three million frames: run by name to measure the simulator"]
fn a_thousand_ranks_stream_thousands_of_frames() {
    stream(1024, 3000);
}

#[test]
fn a_full_mesh_of_links_is_made_and_left() {
    let ranks = if cfg!(miri) { 8 } else { 300 };
    let network = SimNetwork::new(SimOptions::new(ranks, 0));
    let pairs = (0..ranks).flat_map(|me| (0..ranks).filter(move |&peer| peer != me).map(move |peer| (me, peer)));
    let links: Vec<_> = pairs.map(|(me, peer)| network.link(me, peer)).collect();
    assert_eq!(network.next_event(), None);
    drop(links);
    let_everything_happen(&network);
    assert_eq!(network.now(), us(10));
}
