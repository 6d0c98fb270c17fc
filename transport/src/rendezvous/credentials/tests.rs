//! The handshake between two ends of every sort.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::*;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(5)
}

fn credentials(job: u8, token: Option<&str>) -> Credentials {
    Credentials { job: [job; 16], token: token.map(|token| Token::new(token).unwrap()) }
}

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// Shakes hands over a Unix pair; what the connector and the acceptor made of it.
fn shake(
    connector: &Credentials,
    acceptor: &Credentials,
    hello: &[u8],
) -> (Result<(), HandshakeError>, Result<Vec<u8>, HandshakeError>) {
    let (near, far) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let far = far;
            acceptor.accept(&far, soon())
        });
        let connected = connector.prove_as_connector(&near, soon(), hello);
        drop(near);
        (connected, accepted.join().unwrap())
    })
}

#[test]
fn ends_that_belong_together() {
    for token in [None, Some("eight by"), Some("a token that is longer than one block of the hash, which has 64 bytes")]
    {
        for length in [0, 1, 1000, MAX_HELLO] {
            let hello = vec![7; length];
            let (connected, accepted) = shake(&credentials(1, token), &credentials(1, token), &hello);
            connected.unwrap();
            assert_eq!(accepted.unwrap(), hello);
        }
    }
}

#[test]
fn ends_that_do_not() {
    let (one, two) = (Some("token number one"), Some("token number two"));
    for (connector, acceptor) in [(one, two), (one, None), (None, two), (one, Some("token number onE"))] {
        let (connected, accepted) = shake(&credentials(1, connector), &credentials(1, acceptor), b"x");
        assert!(matches!(connected, Err(HandshakeError::AuthenticationFailed)), "{connected:?}");
        assert!(matches!(accepted, Err(HandshakeError::AuthenticationFailed)), "{accepted:?}");
    }
    let (connected, accepted) = shake(&credentials(1, one), &credentials(2, one), b"x");
    assert!(matches!(connected, Err(HandshakeError::OtherJob)), "{connected:?}");
    assert!(matches!(accepted, Err(HandshakeError::OtherJob)), "{accepted:?}");
    let (connected, _) = shake(&credentials(1, one), &credentials(1, one), &vec![0; MAX_HELLO + 1]);
    assert!(matches!(connected, Err(HandshakeError::TooLong { .. })), "{connected:?}");
}

#[test]
fn blocking_or_not_tcp_or_unix_and_not_a_byte_too_many() {
    fn check<S: AsFd + Read + Write + Send>(mut near: S, mut far: S) {
        let credentials = credentials(3, Some("token of three"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                credentials.prove_as_connector(&near, soon(), b"hello").unwrap();
                near.write_all(b"what follows").unwrap();
            });
            assert_eq!(credentials.accept(&far, soon()).unwrap(), b"hello");
            far.write_all(b"and back").unwrap();
            let mut rest = [0; 12];
            socket::read(far.as_fd(), &mut rest, soon()).unwrap();
            assert_eq!(&rest, b"what follows");
        });
        let mut rest = [0; 8];
        socket::read(near.as_fd(), &mut rest, soon()).unwrap();
        assert_eq!(&rest, b"and back");
    }
    let (near, far) = UnixStream::pair().unwrap();
    check(near, far);
    let (near, far) = tcp_pair();
    check(near, far);
    let (near, far) = tcp_pair();
    near.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    check(near, far);
}

/// Whoever sends back what it gets, or plays both roles, learns and proves nothing.
#[test]
fn an_echo_is_not_a_peer() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let echo = std::thread::spawn(move || {
        let mut buffer = [0; 1000];
        while let Ok(count @ 1..) = far.read(&mut buffer) {
            if far.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
    });
    let result = credentials(1, Some("a secret of mine")).prove_as_connector(&near, soon(), b"");
    assert!(result.is_err());
    drop(near);
    echo.join().unwrap();
}

#[test]
fn silence_and_slowness_end_at_the_deadline() {
    let limit = Duration::from_millis(150);
    let credentials = credentials(1, None);
    for drip in [false, true] {
        let (near, mut far) = UnixStream::pair().unwrap();
        let started = Instant::now();
        let dripping = std::thread::spawn(move || {
            for byte in handshake::hello(&Credentials { job: [1; 16], token: None }, [0; 32]) {
                if drip && far.write_all(&[byte]).is_err() {
                    break;
                }
                let _ = rustix::event::poll(
                    &mut [rustix::event::PollFd::new(&far, rustix::event::PollFlags::IN)],
                    Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 10_000_000 }),
                );
            }
        });
        assert!(matches!(credentials.accept(&near, started + limit), Err(HandshakeError::Deadline)));
        assert!(started.elapsed() < 3 * limit, "{:?}", started.elapsed());
        drop(near);
        dripping.join().unwrap();
    }
}

/// Any change of any byte that the connector sends is noticed.
#[test]
fn no_byte_may_be_changed_on_the_way() {
    let credentials = credentials(1, Some("a secret of mine"));
    let opening = handshake::hello(&credentials, [1; 32]);
    let mut acceptor = Acceptor::new(credentials.clone(), [2; 32]);
    let challenge = acceptor.take(&opening).send.try_into().unwrap();
    let proof = handshake::proof(&credentials, &opening, &challenge, b"payload").unwrap();
    let whole = [&opening[..], &proof].concat();
    let accepts = |bytes: &[u8]| {
        let mut acceptor = Acceptor::new(credentials.clone(), [2; 32]);
        let mut rest = bytes;
        loop {
            let (message, after) = rest.split_at_checked(acceptor.wanted())?;
            rest = after;
            if let Some(outcome) = acceptor.take(message).outcome {
                return outcome.ok();
            }
        }
    };
    assert_eq!(accepts(&whole).as_deref(), Some(&b"payload"[..]));
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut changed = whole.clone();
            changed[at] ^= 1 << bit;
            assert_eq!(accepts(&changed), None, "byte {at}, bit {bit}");
        }
    }
}

#[test]
fn a_token_is_not_shown() {
    let text = format!("{:?}", credentials(1, Some("hunter22")));
    assert!(!text.contains("hunter22"), "{text}");
    assert!(Token::new("short").is_none());
}
