//! How quick a link over InfiniBand or RoCE is by itself, between two processes of this host: to be compared with
//! `ib_write_lat -s 8` and `ib_write_bw -s 65536` on the same device.
//!
//! `cargo run --release -p paceline-transport --features rdma --example rdma_rate`

use std::process::Command;
use std::time::Instant;

use paceline_transport::{Channel, Endpoint, Environment, Fabric, LinkKind, Rendezvous, Setup, Stamp};

const CHANNEL: Channel = Channel(1);
const STAMP: Stamp = Stamp([0, 0]);
const ROUND_TRIPS: usize = 1000;
const MESSAGES: usize = 300;

fn send(end: &mut Endpoint, message: &[u8]) {
    let (peer, mut sent) = (1 - end.me(), 0);
    while sent < message.len() {
        sent += end.send(peer, CHANNEL, STAMP, &message[sent..]).expect("a link").unwrap_or(0);
    }
}

fn receive(end: &mut Endpoint, target: &mut [u8]) {
    let (peer, mut got) = (1 - end.me(), 0);
    while got < target.len() {
        if end.head(peer, CHANNEL).expect("a link").is_some() {
            got += end.recv_into(peer, CHANNEL, &mut target[got..]).expect("a link");
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (rank, place) = match (arguments.next(), arguments.next()) {
        (Some(rank), Some(place)) => (rank.parse().expect("a rank"), place),
        _ => (0, format!("local://rdma-rate-{}", std::process::id())),
    };
    let mut other = (rank == 0).then(|| {
        let program = std::env::current_exe().expect("this program");
        Command::new(program).args(["1", &place]).spawn().expect("the other process")
    });
    let mut setup = Setup::new(rank, 2, place.parse::<Rendezvous>().expect("a place"));
    setup.links = vec![LinkKind::Rdma];
    setup.interface = Some("=lo".into());
    setup.rdma = paceline_transport::rdma::RdmaOptions::from_env(&Environment::from_process()).expect("sound settings");
    let (_fabric, mut end) = Fabric::join(&setup).expect("a link");
    let mut word = [7u8; 8];
    let mut times = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let begin = Instant::now();
        if rank == 0 {
            send(&mut end, &word);
            receive(&mut end, &mut word);
        } else {
            receive(&mut end, &mut word);
            send(&mut end, &word);
        }
        times.push(begin.elapsed().as_secs_f64() * 1e6 / 2.0);
    }
    let mut bulk = vec![1u8; 64 << 10];
    let begin = Instant::now();
    for _ in 0..MESSAGES {
        if rank == 0 { send(&mut end, &bulk) } else { receive(&mut end, &mut bulk) }
    }
    if rank == 0 {
        receive(&mut end, &mut word)
    } else {
        send(&mut end, &word)
    }
    let rate = (MESSAGES * bulk.len()) as f64 / begin.elapsed().as_secs_f64() / f64::from(1 << 20);
    if rank == 0 {
        times.sort_by(f64::total_cmp);
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        println!("8 bytes: {:.2} us typical, {mean:.2} us mean; 64 KiB: {rate:.2} MiB/s", times[times.len() / 2]);
    }
    drop(end);
    if let Some(other) = &mut other {
        other.wait().expect("the other process ends");
    }
}
