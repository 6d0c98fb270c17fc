//! A TCP link beside bare sockets over loopback: rates on 1, 2 and 4 streams, and the round trip of eight bytes.
//!
//! `cargo run --release -p paceline-transport --example tcp_rate`. First both ends take turns in one thread, which shows
//! what the calls cost even if the cores are busy (with ` -- alone` that is all); then they run in two threads. Link and
//! bare sockets alternate, since loopback's rate drifts more than the two differ; lines give medians, and
//! for rates in two threads the best of all turns.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use paceline_transport::tcp::TcpLink;
use paceline_transport::{Channel, Stamp};

const TURNS: usize = 30;
const MESSAGE_BYTES: usize = 16 << 20;
const MESSAGES: usize = 4;
const ROUND_TRIPS: usize = 300;
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

fn links(n: usize) -> (TcpLink, TcpLink) {
    let (near, far) = streams(n);
    (TcpLink::new(near).expect("a link"), TcpLink::new(far).expect("a link"))
}

fn send_all(link: &mut TcpLink, message: &[u8]) {
    let mut sent = 0;
    while sent < message.len() {
        sent += link.send(Channel(1), Stamp::default(), &message[sent..]).expect("a link").unwrap_or(0);
    }
}

fn link_rate(n: usize, into_place: bool) -> f64 {
    let (mut near, mut far) = links(n);
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

/// Plays eight bytes to and fro between two threads; microseconds of each round trip.
fn round_trips<T: Send>(ends: (T, T), send: fn(&mut T), receive: fn(&mut T)) -> Vec<f64> {
    let (mut near, mut far) = ends;
    let mut times = Vec::with_capacity(ROUND_TRIPS);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUND_TRIPS {
                receive(&mut far);
                send(&mut far);
            }
        });
        for _ in 0..ROUND_TRIPS {
            let start = Instant::now();
            send(&mut near);
            receive(&mut near);
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
    });
    times
}

fn bare_round_trips(is_blocking: bool) -> Vec<f64> {
    let (mut near, mut far) = streams(1);
    let ends = (near.remove(0), far.remove(0));
    for stream in [&ends.0, &ends.1] {
        stream.set_nonblocking(!is_blocking).expect("a socket");
    }
    let send = |stream: &mut TcpStream| assert_eq!(stream.write(&[1; 8]).expect("a socket"), 8);
    round_trips(ends, send, |stream| while moved(stream.read(&mut [0; 8])) == 0 {})
}

fn link_round_trips(n: usize) -> Vec<f64> {
    let receive = |link: &mut TcpLink| {
        while link.head().expect("a link").is_none() {}
        link.advance(8);
    };
    round_trips(links(n), |link| send_all(link, &[1; 8]), receive)
}

/// One message there and one back over bare sockets, both ends in this thread: microseconds.
fn bare_alone(ends: &mut [TcpStream; 2], source: &[u8], target: &mut [u8]) -> f64 {
    let start = Instant::now();
    for direction in 0..2 {
        let (mut sent, mut came) = (0, 0);
        while came < source.len() {
            if sent < source.len() {
                sent += moved(ends[direction].write(&source[sent..]));
            }
            came += moved(ends[1 - direction].read(&mut target[came..]));
        }
    }
    start.elapsed().as_secs_f64() * 1e6
}

/// The same over a link, read with `recv_into` or, without a target, with `head` and `advance`.
fn link_alone(ends: &mut [TcpLink; 2], source: &[u8], mut target: Option<&mut [u8]>) -> f64 {
    let start = Instant::now();
    for direction in 0..2 {
        let (mut sent, mut came) = (0, 0);
        while came < source.len() {
            if sent < source.len() {
                let accepted = ends[direction].send(Channel(1), Stamp::default(), &source[sent..]);
                sent += accepted.expect("a link").unwrap_or(0);
            }
            let far = &mut ends[1 - direction];
            if let Some(target) = &mut target {
                came += far.recv_into(&mut target[came..]).expect("a link");
            } else if let Some(head) = far.head().expect("a link") {
                let bytes = std::hint::black_box(head.bytes).len();
                far.advance(bytes);
                came += bytes;
            }
        }
    }
    start.elapsed().as_secs_f64() * 1e6
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn best(values: &[f64], better: fn(f64, f64) -> f64) -> f64 {
    values.iter().copied().reduce(better).expect("a turn")
}

fn main() {
    in_one_thread();
    if std::env::args().nth(1).as_deref() != Some("alone") {
        rates();
        latencies();
    }
}

fn in_one_thread() {
    for bytes in [8, 4096, 64 << 10, 512 << 10, 4 << 20] {
        let (source, mut target) = (vec![1; bytes], vec![0; bytes]);
        let (near, far) = streams(1);
        let mut bare = [near, far].map(|streams| streams.into_iter().next().expect("one"));
        let mut ends = [1, 4, 1].map(|n| <[TcpLink; 2]>::from(links(n)));
        let mut times: [Vec<f64>; 4] = Default::default();
        for _ in 0..(64 << 20) / (bytes + (64 << 10)) {
            times[0].push(bare_alone(&mut bare, &source, &mut target));
            times[1].push(link_alone(&mut ends[0], &source, Some(&mut target)));
            times[2].push(link_alone(&mut ends[1], &source, Some(&mut target)));
            times[3].push(link_alone(&mut ends[2], &source, None));
        }
        let [bare, one, four, head] = times.map(|mut times| median(&mut times));
        println!(
            "{bytes} bytes and back, one thread: bare {bare:.2} us, recv_into {one:.2} ({:.2} of bare), on 4 streams \
             {four:.2} ({:.2}), head {head:.2} ({:.2})",
            one / bare,
            four / bare,
            head / bare
        );
    }
}

fn rates() {
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
}

fn latencies() {
    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..TURNS {
        times[0].extend(bare_round_trips(false));
        times[1].extend(link_round_trips(1));
        times[2].extend(link_round_trips(4));
        times[3].extend(bare_round_trips(true));
    }
    let [bare, one, four, blocking] = times.map(|mut times| median(&mut times));
    println!(
        "8 bytes and back: bare {bare:.2} us polling ({blocking:.2} blocking), link {one:.2} ({:.2} of bare), on 4 \
         streams {four:.2} ({:.2})",
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
