//! A pair of links over loopback, and how the tests drive it.

mod choice;
mod ends;
mod order;
mod port;
mod reach;
mod wake;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};

use rustix::net::sockopt;

use super::TcpLink;
use crate::link::{Channel, LinkError, Stamp};

/// What the kernel may hold on the receiving side where `kernel_bytes` is given: two segments of loopback. With less, the
/// sender waits for timers until its segment fits the window.
const WINDOW_BYTES: usize = 128 << 10;

/// Connected streams, both ends in the same order. `kernel_bytes` bounds what the kernel holds on the sending side.
fn streams(host: IpAddr, n: usize, kernel_bytes: Option<usize>) -> (Vec<TcpStream>, Vec<TcpStream>) {
    let listener = TcpListener::bind((host, 0)).unwrap();
    if kernel_bytes.is_some() {
        sockopt::set_socket_recv_buffer_size(&listener, WINDOW_BYTES).unwrap();
    }
    let pair = || {
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        assert_eq!(near.local_addr().unwrap(), far.peer_addr().unwrap());
        if let Some(bytes) = kernel_bytes {
            sockopt::set_socket_send_buffer_size(&near, bytes).unwrap();
            sockopt::set_socket_recv_buffer_size(&near, WINDOW_BYTES).unwrap();
            sockopt::set_socket_send_buffer_size(&far, bytes).unwrap();
        }
        (near, far)
    };
    (0..n).map(|_| pair()).unzip()
}

fn links(host: IpAddr, n: usize, kernel_bytes: Option<usize>) -> (TcpLink, TcpLink) {
    let (near, far) = streams(host, n, kernel_bytes);
    (TcpLink::new(near).unwrap(), TcpLink::new(far).unwrap())
}

/// The loopback addresses of the families that this machine has.
fn hosts() -> Vec<IpAddr> {
    let v6 = IpAddr::from(Ipv6Addr::LOCALHOST);
    let mut hosts = vec![IpAddr::from(Ipv4Addr::LOCALHOST)];
    match TcpListener::bind((v6, 0)) {
        Ok(_) => hosts.push(v6),
        Err(error) => eprintln!("skipped for IPv6: {error}"),
    }
    hosts
}

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Bytes that tell a message and a position in it from others.
fn message(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut message: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| next().to_le_bytes()).collect();
    message.truncate(bytes);
    message
}

/// Messages on their way out: what each channel still has to send, front first.
struct Outbox {
    channel: Channel,
    messages: Vec<Vec<u8>>,
    current: usize,
    sent: usize,
}

impl Outbox {
    fn new(channel: u64, messages: Vec<Vec<u8>>) -> Outbox {
        Outbox { channel: Channel(channel), messages, current: 0, sent: 0 }
    }

    fn is_empty(&self) -> bool {
        self.current == self.messages.len()
    }

    /// One `send`; whether it moved anything. A message's stamp is its place among its channel's.
    fn push(&mut self, link: &mut TcpLink) -> Result<bool, LinkError> {
        let message = &self.messages[self.current];
        let Some(bytes) = link.send(self.channel, Stamp([self.current as u64, 7]), &message[self.sent..])? else {
            return Ok(false);
        };
        self.sent += bytes;
        if self.sent == message.len() {
            self.current += 1;
            self.sent = 0;
        }
        Ok(true)
    }
}

/// What came in on each channel: its messages, told apart by their stamps.
#[derive(Default)]
struct Inbox {
    channels: std::collections::BTreeMap<u64, Vec<Vec<u8>>>,
}

impl Inbox {
    fn entry(&mut self, channel: Channel, stamp: Stamp) -> &mut Vec<u8> {
        assert_eq!(stamp.0[1], 7);
        let messages = self.channels.entry(channel.0).or_default();
        let place = stamp.0[0] as usize;
        if place == messages.len() {
            messages.push(Vec::new());
        }
        assert_eq!(place + 1, messages.len(), "message {place} came when {} had begun", messages.len());
        messages.last_mut().unwrap()
    }

    /// Reads once: with `recv_into` for at most `limit` bytes, or with `head` and `advance`; whether it moved anything.
    fn pull(&mut self, link: &mut TcpLink, limit: usize, into_place: bool) -> Result<bool, LinkError> {
        let Some(head) = link.head()? else {
            return Ok(false);
        };
        let message = self.entry(head.channel, head.stamp);
        let left = head.left;
        if into_place && left > 0 {
            let had = message.len();
            message.resize(had + limit, 0);
            let moved = link.recv_into(&mut message[had..])?;
            assert!(moved <= left);
            message.truncate(had + moved);
            return Ok(moved > 0);
        }
        let taken = head.bytes.len().min(limit);
        message.extend_from_slice(&head.bytes[..taken]);
        link.advance(taken);
        Ok(taken > 0 || left == 0)
    }

    /// Asserts that exactly what `sent` held has come.
    fn check(&self, sent: &[Outbox]) {
        for outbox in sent.iter().filter(|outbox| !outbox.messages.is_empty()) {
            let came = self.channels.get(&outbox.channel.0).map_or(&[][..], |messages| &messages[..]);
            let lengths = |messages: &[Vec<u8>]| messages.iter().map(Vec::len).collect::<Vec<_>>();
            assert_eq!(lengths(came), lengths(&outbox.messages), "on {:?}", outbox.channel);
            assert!(came == outbox.messages, "bytes differ on {:?}", outbox.channel);
        }
    }
}
