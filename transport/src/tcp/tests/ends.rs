//! How a link is set up, and what it says when its peer leaves, dies or talks nonsense.

use std::io::Write;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::FdFlags;

use super::super::frame::{Frame, HEADER_BYTES};
use super::*;

fn header(sequence: u64, bytes: u32) -> [u8; HEADER_BYTES] {
    Frame { channel: Channel(1), stamp: Stamp::default(), sequence, bytes }.encode()
}

/// Reads until an error: how many payload bytes came, how many frames were released, and the error's text.
fn drain(link: &mut TcpLink) -> (usize, usize, String) {
    let (mut bytes, mut frames) = (0, 0);
    loop {
        match link.head() {
            Ok(None) => {}
            Ok(Some(head)) => {
                let (len, left) = (head.bytes.len(), head.left);
                bytes += len;
                frames += usize::from(len == left);
                link.advance(len);
            }
            Err(error) => return (bytes, frames, error.to_string()),
        }
    }
}

const CLOSED: &str = "the connection was closed by the peer";

/// On which stream, what.
type Writes<'a> = &'a [(usize, &'a [u8])];

/// Writes to the streams as a peer would, closes them, and asserts what the reader makes of it.
fn check(writes: Writes<'_>, want: (usize, usize, &str)) {
    let (mut near, far) = streams(V4, 2, None);
    let mut far = TcpLink::new(far).unwrap();
    for &(lane, bytes) in writes {
        near[lane].write_all(bytes).unwrap();
    }
    drop(near);
    let (bytes, frames, text) = drain(&mut far);
    assert!((bytes, frames) == (want.0, want.1) && text.contains(want.2), "{bytes} {frames} {text:?}, not {want:?}");
    assert_eq!(far.head().unwrap_err().to_string(), text, "an error stays");
    assert_eq!(far.recv_into(&mut [0; 4]).unwrap_err().to_string(), text, "an error stays");
}

#[test]
fn the_peer_leaves_or_talks_nonsense() {
    let frame = |sequence, bytes: usize| [&header(sequence, bytes as u32)[..], &vec![7; bytes]].concat();
    let rows: &[(Writes<'_>, _)] = &[
        (&[], (0, 0, CLOSED)),
        (&[(0, &frame(0, 10))], (10, 1, CLOSED)),
        (&[(0, &frame(0, 0))], (0, 1, CLOSED)),
        (&[(0, &frame(0, 10)), (1, &frame(1, 3)), (0, &frame(2, 4))], (17, 3, CLOSED)),
        (&[(1, &frame(0, 10)), (0, &frame(1, 3))], (13, 2, CLOSED)),
        (&[(0, &header(0, 10)[..9])], (0, 0, CLOSED)),
        (&[(0, &header(0, 10))], (0, 0, CLOSED)),
        (&[(0, &frame(0, 1000)[..700])], (660, 0, CLOSED)),
        (&[(0, &frame(0, 3)), (0, &frame(2, 3))], (3, 1, CLOSED)),
        (&[(0, &frame(4, 3)), (1, &frame(2, 3))], (0, 0, "frame 0 is missing: the streams hold [4, 2]")),
        (&[(0, &frame(0, 3)), (1, &frame(0, 3))], (3, 1, "frame 0 came again, on stream 1")),
        (&[(0, b"GET / HTTP/1.1\r\n\r\n")], (0, 0, "no frame begins with the bytes [47, 45, 54, 20]")),
        (&[(0, &frame(0, 3)), (1, b"x")], (3, 1, "no frame begins with")),
        (&[(0, b"pcl\x01\xff\xff\xff\xff________________________________")], (0, 0, "a frame of 4294967295 bytes")),
    ];
    for (writes, want) in rows {
        check(writes, *want);
    }
}

#[test]
fn a_reset_is_told_by_both_directions() {
    let (near, far) = streams(V4, 1, None);
    let mut near = TcpLink::new(near).unwrap();
    assert_eq!(near.send(Channel(0), Stamp::default(), b"unread").unwrap(), Some(6));
    let mut unread = [0];
    assert_eq!(far[0].peek(&mut unread).unwrap(), 1);
    drop(far);
    let text = drain(&mut near).2;
    assert!(text.contains("Connection reset by peer"), "{text}");
    let text = near.send(Channel(0), Stamp::default(), b"more").unwrap_err().to_string();
    assert!(text == CLOSED || text.contains("Connection reset by peer"), "{text}");
    assert_eq!(near.send(Channel(0), Stamp::default(), b"more").unwrap_err().to_string(), text);
}

#[test]
fn what_arrived_is_read_after_sending_fails() {
    let (mut near, mut far) = links(V4, 2, None);
    assert_eq!(near.send(Channel(0), Stamp::default(), b"farewell").unwrap(), Some(8));
    drop(near);
    while far.send(Channel(0), Stamp::default(), b"into the void").is_ok() {}
    assert_eq!(drain(&mut far).0, 8);
}

#[test]
fn one_lost_stream_ends_the_link() {
    let (mut near, far) = streams(V4, 2, None);
    let mut far = TcpLink::new(far).unwrap();
    assert!(far.head().unwrap().is_none());
    assert_eq!(far.send(Channel(0), Stamp::default(), b"unread").unwrap(), Some(6));
    near[0].peek(&mut [0]).unwrap();
    near[1].write_all(&header(0, 0)).unwrap();
    drop(near.remove(0));
    let (bytes, frames, text) = drain(&mut far);
    assert!((bytes, frames) == (0, 1) && text.contains("Connection reset by peer"), "{frames} {text}");
}

#[test]
fn sockets_are_set_up() {
    let (near, _far) = streams(V4, 2, None);
    let link = TcpLink::new(near).unwrap();
    assert_eq!(link.fds().count(), 2);
    for fd in link.fds() {
        assert!(sockopt::tcp_nodelay(fd).unwrap() && sockopt::socket_keepalive(fd).unwrap());
        assert_eq!(sockopt::tcp_keepidle(fd).unwrap(), Duration::from_secs(15));
        assert_eq!(sockopt::tcp_user_timeout(fd).unwrap(), 0, "would end a link whose peer doesn't read for a while");
        assert!(rustix::io::fcntl_getfd(fd).unwrap().contains(FdFlags::CLOEXEC));
        assert!(rustix::fs::fcntl_getfl(fd).unwrap().contains(OFlags::NONBLOCK));
    }
}

#[test]
fn the_number_of_streams_is_bounded() {
    let (near, _far) = streams(V4, 65, None);
    for streams in [Vec::new(), near] {
        let n = streams.len();
        let error = TcpLink::new(streams).unwrap_err();
        assert_eq!(error.to_string(), format!("a TCP link has 1 to 64 streams, not {n}"));
    }
}

#[test]
#[should_panic(expected = "were presented")]
fn a_message_presented_short_is_noticed() {
    let (mut near, _far) = links(V4, 1, Some(4096));
    let long = message(1, 400_000);
    let accepted = near.send(Channel(1), Stamp::default(), &long).unwrap().unwrap();
    let _ = near.send(Channel(1), Stamp::default(), &long[accepted + 1..]);
}
