//! A TCP link beside bare sockets over loopback: rates on 1, 2 and 4 streams, and the round trip of eight bytes.
//!
//! `cargo run --release -p paceline-transport --example tcp_rate`. Link and bare sockets take turns, and each line
//! gives the best of all turns and the ratio, since loopback's rate drifts more than the two differ.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use paceline_transport::tcp::TcpLink;
use paceline_transport::{Channel, Stamp};

const TURNS: usize = 40;
const MESSAGE_BYTES: usize = 16 << 20;
const MESSAGES: usize = 4;
const ROUND_TRIPS: usize = 500;
const BARE_BYTES: usize = 256 << 10;

fn streams(n: usize) -> (Vec<TcpStream>, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let pair = || {
        let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let far = listener.accept().expect("a connection").0;
        for stream in [&near, &far] {
            stream.set_nodelay(true).expect("a socket");
            stream.set_nonblocking(true).expect("a socket");
        }
        (near, far)
    };
    (0..n).map(|_| pair()).unzip()
}

fn moved(result: std::io::Result<usize>) -> usize {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        result => result.expect("a socket"),
    }
}

/// Seconds that both closures take at once.
fn together(near: impl FnOnce() + Send, far: impl FnOnce() + Send) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(near);
        far();
    });
    start.elapsed().as_secs_f64()
}

fn bare_rate(n: usize) -> f64 {
    let (mut near, mut far) = streams(n);
    let (source, mut target) = (vec![1; MESSAGE_BYTES], vec![0; MESSAGE_BYTES]);
    let total = MESSAGE_BYTES * MESSAGES;
    let send = || {
        let mut sent = 0;
        while sent < total {
            for stream in &mut near {
                let first = sent % MESSAGE_BYTES;
                let end = MESSAGE_BYTES.min(first + 2 * BARE_BYTES).min(first + total - sent);
                sent += moved(stream.write(&source[first..end]));
            }
        }
    };
    let receive = || {
        let mut came = 0;
        while came < total {
            for stream in &mut far {
                let first = came % MESSAGE_BYTES;
                let end = MESSAGE_BYTES.min(first + 2 * BARE_BYTES);
                if first < end && came < total {
                    came += moved(stream.read(&mut target[first..end]));
                }
            }
        }
    };
    total as f64 / together(send, receive) / 1e9
}

fn send_all(link: &mut TcpLink, message: &[u8]) {
    let mut sent = 0;
    while sent < message.len() {
        sent += link.send(Channel(1), Stamp::default(), &message[sent..]).expect("a link").unwrap_or(0);
    }
}

fn link_rate(n: usize, into_place: bool) -> f64 {
    let (near, far) = streams(n);
    let (mut near, mut far) = (TcpLink::new(near).expect("a link"), TcpLink::new(far).expect("a link"));
    let (source, mut target) = (vec![1; MESSAGE_BYTES], vec![0; MESSAGE_BYTES]);
    let send = || (0..MESSAGES).for_each(|_| send_all(&mut near, &source));
    let receive = || {
        let mut came = 0;
        while came < MESSAGE_BYTES * MESSAGES {
            if into_place {
                came += far.recv_into(&mut target[came % MESSAGE_BYTES..]).expect("a link");
            } else if let Some(head) = far.head().expect("a link") {
                let bytes = head.bytes.len();
                std::hint::black_box(head.bytes);
                far.advance(bytes);
                came += bytes;
            }
        }
    };
    (MESSAGE_BYTES * MESSAGES) as f64 / together(send, receive) / 1e9
}

fn bare_round_trip(blocking: bool) -> f64 {
    let (near, far) = streams(1);
    let run = |mut stream: TcpStream, first: bool| {
        stream.set_nonblocking(!blocking).expect("a socket");
        let mut bytes = [1; 8];
        for round in 0..2 * ROUND_TRIPS {
            if (round % 2 == 0) == first {
                assert_eq!(stream.write(&bytes).expect("a socket"), 8);
            } else {
                while moved(stream.read(&mut bytes)) == 0 {}
            }
        }
    };
    together(|| run(near.into_iter().next().expect("one"), true), || run(far.into_iter().next().expect("one"), false))
        / ROUND_TRIPS as f64
        * 1e6
}

fn link_round_trip(n: usize) -> f64 {
    let (near, far) = streams(n);
    let run = |streams: Vec<TcpStream>, first: bool| {
        let mut link = TcpLink::new(streams).expect("a link");
        for round in 0..2 * ROUND_TRIPS {
            if (round % 2 == 0) == first {
                send_all(&mut link, &[1; 8]);
            } else {
                while link.head().expect("a link").is_none() {}
                link.advance(8);
            }
        }
        // The peer may not have read the last bytes.
        std::thread::sleep(Duration::from_millis(1));
    };
    together(|| run(near, true), || run(far, false)) / ROUND_TRIPS as f64 * 1e6
}

fn best(values: &[f64], better: fn(f64, f64) -> f64) -> f64 {
    values.iter().copied().reduce(better).expect("a turn")
}

fn main() {
    for n in [1, 2, 4] {
        let turns: Vec<[f64; 3]> =
            (0..TURNS).map(|_| [bare_rate(n), link_rate(n, true), link_rate(n, false)]).collect();
        let [bare, into_place, in_buffer] = [0, 1, 2].map(|i| best(&turns.map_column(i), f64::max));
        println!(
            "{n} streams: bare {bare:.2} GB/s, recv_into {into_place:.2} ({:.2} of bare), head {in_buffer:.2} ({:.2})",
            into_place / bare,
            in_buffer / bare
        );
    }
    let turns: Vec<[f64; 4]> = (0..TURNS)
        .map(|_| [bare_round_trip(false), link_round_trip(1), link_round_trip(4), bare_round_trip(true)])
        .collect();
    let [bare, one, four, blocking] = [0, 1, 2, 3].map(|i| best(&turns.map_column(i), f64::min));
    println!(
        "8 bytes and back: bare {bare:.2} us polling ({blocking:.2} blocking), link {one:.2} ({:.2} of bare), on 4 streams {four:.2} ({:.2})",
        one / bare,
        four / bare
    );
}

trait Columns {
    fn map_column(&self, i: usize) -> Vec<f64>;
}

impl<const N: usize> Columns for Vec<[f64; N]> {
    fn map_column(&self, i: usize) -> Vec<f64> {
        self.iter().map(|row| row[i]).collect()
    }
}
