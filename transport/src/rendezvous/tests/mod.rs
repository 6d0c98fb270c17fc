//! Ranks as threads that meet, or don't, over real sockets.

mod failures;
mod meetings;
mod strangers;

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use super::handshake::HandshakeError;
use super::messages::Introduction;
use super::*;

type Outcome = (Result<Exchanged, RendezvousError>, Duration);

/// Runs an exchange per setup, each in a thread, each for `limit`; what came of each and after how long.
fn meet(setups: Vec<Setup>, limit: Duration) -> Vec<Outcome> {
    let ranks = setups.into_iter().map(|setup| std::thread::spawn(move || attend(&setup, limit))).collect::<Vec<_>>();
    ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
}

fn attend(setup: &Setup, limit: Duration) -> Outcome {
    let started = Instant::now();
    (exchange(setup, &entry(setup.rank), started + limit), started.elapsed())
}

/// Bytes that differ by rank in length and content; rank 0's are none.
fn entry(rank: usize) -> Vec<u8> {
    vec![rank as u8; rank * 1000]
}

fn assert_all_met(outcomes: Vec<Outcome>, size: usize) {
    let want: Vec<_> = (0..size).map(entry).collect();
    let exchanged: Vec<_> = outcomes.into_iter().map(|(result, _)| result.unwrap()).collect();
    assert!(!exchanged.is_empty());
    for one in &exchanged {
        assert_eq!(one.entries, want);
        assert_eq!(one.job, exchanged[0].job);
    }
}

/// A port that is free at the moment.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

fn fresh_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("paceline-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn fresh_path() -> PathBuf {
    std::env::temp_dir().join(fresh_name())
}

fn tcp(host: &str, port: u16) -> Rendezvous {
    Rendezvous::Tcp(TcpPlace { hosts: vec![host.to_owned()], ports: vec![port] })
}

fn ranks(size: usize, how: &Rendezvous) -> Vec<Setup> {
    (0..size).map(|rank| Setup::new(rank, size, how.clone())).collect()
}

/// One place of every kind, for `size` ranks.
fn every_kind(size: usize) -> Vec<Rendezvous> {
    vec![
        tcp("127.0.0.1", free_port()),
        tcp("::1", free_port()),
        tcp("localhost", free_port()),
        Rendezvous::Local(fresh_name()),
        Rendezvous::File(fresh_path()),
        Rendezvous::Hub(Hub::new(size)),
    ]
}

/// Connects to the root at `port` as rank `rank` of `size` would, as far as the end of the handshake.
fn shake_hands(port: u16, rank: usize, size: usize) -> std::net::TcpStream {
    let deadline = Instant::now() + Duration::from_secs(5);
    let credentials = Credentials { job: credentials::name_of_job(""), token: None };
    let (pid, host, left) = (4711, "imaginary".to_owned(), Duration::from_secs(5));
    let hello = Introduction { rank, size, pid, host, left, limit: left }.encode();
    loop {
        if let Ok(stream) = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            match credentials.prove_as_connector(&stream, deadline, &hello) {
                Ok(()) => return stream,
                Err(HandshakeError::Closed) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert!(Instant::now() < deadline, "no root at port {port}");
        std::thread::yield_now();
    }
}
