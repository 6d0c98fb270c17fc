//! Whoever else comes to the port, with anything but good manners.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::super::handshake;
use super::*;

const LIMIT: Duration = Duration::from_secs(10);

fn visit(port: u16) -> TcpStream {
    let until = Instant::now() + LIMIT;
    loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            Ok(stream) if stream.local_addr().unwrap() != stream.peer_addr().unwrap() => return stream,
            _ => assert!(Instant::now() < until, "nobody listens"),
        }
        std::thread::yield_now();
    }
}

/// A sound opening of this job, as far as the proof's head, which announces `length` bytes.
fn announce(port: u16, length: u32) -> TcpStream {
    let mut stream = visit(port);
    let credentials = Credentials { job: credentials::name_of_job(""), token: None };
    stream.write_all(&handshake::hello(&credentials, [0; 32])).unwrap();
    stream.read_exact(&mut [0; handshake::CHALLENGE_BYTES]).unwrap();
    stream.write_all(&[&[0; 32][..], &length.to_le_bytes()].concat()).unwrap();
    stream
}

fn say(port: u16, bytes: &[u8]) -> TcpStream {
    let mut stream = visit(port);
    let _ = stream.write_all(bytes);
    stream
}

#[test]
fn strangers_are_dropped_and_the_job_goes_on() {
    let huge = |port| {
        let mut stream = shake_hands(port, 1, 3);
        let _ = stream.write_all(&u32::MAX.to_le_bytes());
        stream
    };
    let nonsense = |port| {
        let stream = visit(port);
        let credentials = Credentials { job: credentials::name_of_job(""), token: None };
        credentials.prove_as_connector(&stream, Instant::now() + LIMIT, b"who am I").unwrap();
        stream
    };
    let mut version = handshake::hello(&Credentials { job: [0; 16], token: None }, [0; 32]);
    version[8] = 99;
    type Stranger<'a> = (&'static str, Box<dyn Fn(u16) -> TcpStream + 'a>, bool);
    let strangers: Vec<Stranger> = vec![
        ("http", Box::new(|port| say(port, b"GET / HTTP/1.0\r\n\r\n")), true),
        ("one wrong byte", Box::new(|port| say(port, b"x")), true),
        ("zeros", Box::new(|port| say(port, &[0; 100_000])), true),
        ("another version", Box::new(move |port| say(port, &version)), true),
        ("a huge hello", Box::new(|port| announce(port, u32::MAX)), true),
        ("a false proof", Box::new(|port| announce(port, 0)), true),
        ("a huge entry", Box::new(huge), true),
        ("a nonsensical introduction", Box::new(nonsense), true),
        ("silence", Box::new(|port| say(port, b"")), false),
        ("a true beginning, then silence", Box::new(|port| say(port, b"\xc5pace")), false),
        ("a long name, then silence", Box::new(|port| announce(port, 1000)), false),
    ];
    for (name, stranger, dropped) in strangers {
        let port = free_port();
        let root = std::thread::spawn(move || attend(&Setup::new(0, 3, tcp("127.0.0.1", port)), LIMIT));
        let mut there: Vec<_> = (0..3).map(|_| stranger(port)).collect();
        if dropped {
            for stream in &mut there {
                stream.set_read_timeout(Some(LIMIT)).unwrap();
                let mut answer = Vec::new();
                let ended = stream.read_to_end(&mut answer);
                let reset = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
                assert!(ended.as_ref().map_or_else(reset, |_| true), "{name}: {ended:?}");
            }
        }
        let setups = [1, 2].map(|rank| Setup::new(rank, 3, tcp("127.0.0.1", port)));
        let mut outcomes = meet(setups.to_vec(), LIMIT);
        outcomes.insert(0, root.join().unwrap());
        assert!(outcomes.iter().all(|(_, took)| *took < LIMIT / 2), "{name}: {outcomes:?}");
        assert_all_met(outcomes, 3);
        drop(there);
    }
}

/// More silent connections than the root puts up with at once.
#[test]
fn a_crowd_of_silent_strangers() {
    let port = free_port();
    let root = std::thread::spawn(move || attend(&Setup::new(0, 2, tcp("127.0.0.1", port)), LIMIT));
    let crowd: Vec<_> = (0..300).map(|_| visit(port)).collect();
    let mut outcomes = meet(vec![Setup::new(1, 2, tcp("127.0.0.1", port))], LIMIT);
    outcomes.insert(0, root.join().unwrap());
    assert!(outcomes.iter().all(|(_, took)| *took < LIMIT / 2), "{outcomes:?}");
    assert_all_met(outcomes, 2);
    drop(crowd);
}

#[test]
fn a_rank_with_another_token_fails_at_once_and_the_others_go_on() {
    let right = || Token::new("the right one");
    for wrong in [Token::new("the wrong one"), None] {
        for how in [tcp("127.0.0.1", free_port()), Rendezvous::Local(fresh_name()), Rendezvous::File(fresh_path())] {
            let root = Setup { token: right(), ..Setup::new(0, 2, how.clone()) };
            let root = std::thread::spawn(move || attend(&root, LIMIT));
            let (result, took) = attend(&Setup { token: wrong.clone(), ..Setup::new(1, 2, how.clone()) }, LIMIT);
            let error = result.unwrap_err();
            assert!(matches!(error, RendezvousError::AuthenticationFailed { .. }), "{error:?}");
            assert!(error.to_string().contains("authentication failed; PACELINE_TOKEN must be the same"), "{error}");
            assert!(took < LIMIT / 2, "{took:?}");
            let member = attend(&Setup { token: right(), ..Setup::new(1, 2, how) }, LIMIT);
            assert_all_met(vec![root.join().unwrap(), member], 2);
        }
    }
}

#[test]
fn a_root_without_the_token_is_not_trusted() {
    let how = tcp("127.0.0.1", free_port());
    let root = Setup::new(0, 2, how.clone());
    let root = std::thread::spawn(move || attend(&root, Duration::from_millis(800)));
    let member = Setup { token: Token::new("a good token"), ..Setup::new(1, 2, how) };
    let error = attend(&member, LIMIT).0.unwrap_err();
    assert!(matches!(error, RendezvousError::AuthenticationFailed { .. }), "{error:?}");
    assert!(root.join().unwrap().0.is_err());
}
