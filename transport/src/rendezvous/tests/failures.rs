//! Ranks that don't meet, and are told why.

use std::io::Write;

use super::*;

/// Long enough to arrive on a busy machine, short enough for a test.
const SHORT: Duration = Duration::from_millis(1000);
const SLACK: Duration = Duration::from_millis(700);
const LONG: Duration = Duration::from_secs(10);

fn errors(outcomes: Vec<Outcome>) -> Vec<RendezvousError> {
    outcomes.into_iter().map(|(result, _)| result.unwrap_err()).collect()
}

#[test]
fn missing_ranks_are_named_on_all_that_came() {
    std::thread::scope(|scope| {
        for (size, absent) in [(4, vec![2]), (2, vec![1]), (5, vec![1, 3, 4])] {
            for how in every_kind(size) {
                let absent = absent.clone();
                scope.spawn(move || check_missing(size, &absent, &how));
            }
        }
    });
}

fn check_missing(size: usize, absent: &[usize], how: &Rendezvous) {
    let mut setups = ranks(size, how);
    setups.retain(|setup| !absent.contains(&setup.rank));
    let outcomes = meet(setups, SHORT);
    assert!(outcomes.iter().all(|(_, took)| *took < SHORT + SLACK), "{outcomes:?}");
    for error in errors(outcomes) {
        let RendezvousError::Incomplete { missing, arrived, .. } = &error else { panic!("{how:?}: {error:?}") };
        assert_eq!(missing, absent);
        assert_eq!(arrived.len(), size - absent.len());
        assert!(arrived.iter().all(|who| who.pid == std::process::id() && !who.host.is_empty()));
        let want = format!("{} of {size} ranks arrived within 1.0 s, missing rank", size - absent.len());
        assert!(error.to_string().contains(&want), "{error}");
    }
    if let Rendezvous::File(path) = how {
        assert!(!path.exists(), "{path:?} is left behind");
    }
}

/// The rank with the least patience gets the full report, and so does everyone else.
#[test]
fn the_shortest_limit_counts_for_all() {
    std::thread::scope(|scope| {
        for (how, rank, limit) in every_kind(3).into_iter().flat_map(|how| [(how.clone(), 0, LONG), (how, 1, SHORT)]) {
            scope.spawn(move || {
                let (result, took) = attend(&Setup::new(rank, 3, how.clone()), limit);
                assert!(took < SHORT + SLACK, "{took:?}");
                let error = result.unwrap_err();
                let RendezvousError::Incomplete { missing, limited_by, .. } = &error else {
                    panic!("{how:?}: {error:?}");
                };
                assert_eq!((&missing[..], *limited_by), (&[2][..], 1));
            });
        }
    });
}

#[test]
fn two_of_one_rank_are_both_named_on_all() {
    for how in every_kind(3) {
        let setups = [0, 1, 1].map(|rank| Setup::new(rank, 3, how.clone()));
        let outcomes = meet(setups.to_vec(), LONG);
        assert!(outcomes.iter().all(|(_, took)| *took < LONG / 2), "{outcomes:?}");
        for error in errors(outcomes) {
            let RendezvousError::Duplicate { first, second } = &error else { panic!("{error:?}") };
            assert_eq!((first.rank, second.rank), (1, 1));
            assert!(error.to_string().contains("rank 1 came twice: as 1 (host "), "{error}");
        }
    }
}

#[test]
fn another_size_is_an_error_on_all() {
    for how in every_kind(4) {
        let setups = [(0, 4), (1, 4), (2, 5)].map(|(rank, size)| Setup::new(rank, size, how.clone()));
        let threads: Vec<_> =
            setups.into_iter().map(|setup| std::thread::spawn(move || attend(&setup, SHORT))).collect();
        let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        for (rank, error) in errors(outcomes).into_iter().enumerate() {
            match error {
                RendezvousError::SizeMismatch { root_size: 4, other_size: 5, other, .. } => assert_eq!(other.rank, 2),
                other => panic!("{how:?}, rank {rank}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_root_that_never_comes() {
    let port = free_port();
    let cases = [
        (tcp("127.0.0.1", port), format!("no answer from rank 0 at 127.0.0.1:{port} within 1.0 s: connection refused")),
        (Rendezvous::Local("nobody".to_owned()), "local://nobody within 1.0 s: connection refused".to_owned()),
        (Rendezvous::File(fresh_path()), "the file isn't there yet".to_owned()),
    ];
    std::thread::scope(|scope| {
        for (how, last) in cases {
            scope.spawn(move || {
                let (result, took) = attend(&Setup::new(1, 2, how), SHORT);
                let error = result.unwrap_err().to_string();
                assert!(error.contains(&last) && error.ends_with("is rank 0 started?"), "{error}");
                assert!(SHORT <= took && took < SHORT + SLACK, "{took:?}");
            });
        }
    });
}

/// The kernel takes the connection for a process that is stopped.
#[test]
fn a_root_that_is_stopped() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let how = tcp("127.0.0.1", listener.local_addr().unwrap().port());
    let (result, took) = attend(&Setup::new(1, 2, how), SHORT);
    let error = result.unwrap_err().to_string();
    assert!(error.contains("took the connection and said nothing; the process may be stopped"), "{error}");
    assert!(took < SHORT + SLACK, "{took:?}");
}

#[test]
fn a_root_that_dies_while_others_wait() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let how = tcp("127.0.0.1", listener.local_addr().unwrap().port());
    let member = std::thread::spawn(move || attend(&Setup::new(1, 2, how), LONG));
    let (stream, _) = listener.accept().unwrap();
    let credentials = Credentials { job: credentials::name_of_job(""), token: None };
    credentials.accept(&stream, Instant::now() + LONG).unwrap();
    drop(stream);
    let (result, took) = member.join().unwrap();
    assert!(matches!(result, Err(RendezvousError::LostRoot { .. })), "{result:?}");
    assert!(took < LONG / 2, "{took:?}");
}

#[test]
fn a_rank_that_dies_after_it_arrived() {
    let port = free_port();
    let others = std::thread::spawn(move || {
        let setups = [0, 1].map(|rank| Setup::new(rank, 4, tcp("127.0.0.1", port)));
        meet(setups.to_vec(), LONG)
    });
    let mut stream = shake_hands(port, 3, 4);
    stream.write_all(&[0; 4]).unwrap();
    drop(stream);
    let outcomes = others.join().unwrap();
    assert!(outcomes.iter().all(|(_, took)| *took < LONG / 2), "{outcomes:?}");
    for error in errors(outcomes) {
        let RendezvousError::LostRank { lost, .. } = &error else { panic!("{error:?}") };
        assert_eq!((lost.rank, &lost.host[..], lost.pid), (3, "imaginary", 4711));
        assert!(error.to_string().contains("lost rank 3 (host imaginary, pid 4711, 127.0.0.1:"), "{error}");
    }
}

/// It has said who it is, but never brings its bytes: it counts as missing.
#[test]
fn a_rank_that_stops_halfway() {
    let port = free_port();
    let root = std::thread::spawn(move || attend(&Setup::new(0, 2, tcp("127.0.0.1", port)), SHORT));
    let stream = shake_hands(port, 1, 2);
    let error = root.join().unwrap().0.unwrap_err();
    assert!(matches!(&error, RendezvousError::Incomplete { missing, .. } if missing == &[1]), "{error:?}");
    drop(stream);
}

#[test]
fn a_port_that_is_in_use() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (result, took) = attend(&Setup::new(0, 2, tcp("127.0.0.1", address.port())), LONG);
    let error = result.unwrap_err().to_string();
    assert!(error.contains(&format!("can't listen on {address}: the port is in use by another program")), "{error}");
    assert!(took < LONG / 2);
    let mut setup = Setup::new(0, 2, Rendezvous::File(fresh_path()));
    setup.ports = Some(address.port()..=address.port());
    let error = attend(&setup, LONG).0.unwrap_err().to_string();
    assert!(error.contains(&format!("ports {0}-{0} (PACELINE_PORTS): the port is in use", address.port())), "{error}");
}

#[test]
fn a_name_that_does_not_resolve() {
    let (result, took) = attend(&Setup::new(1, 2, tcp("no-such-host.invalid", 5)), SHORT);
    let error = result.unwrap_err();
    assert!(matches!(&error, RendezvousError::Unresolved { host, .. } if host == "no-such-host.invalid"), "{error:?}");
    assert!(took < SHORT + SLACK, "{took:?}");
    let mut setup = Setup::new(1, 2, tcp("127.0.0.1", 5));
    setup.family = Family::V6;
    let error = attend(&setup, SHORT).0.unwrap_err().to_string();
    assert!(error.contains("it has no IPv6 address, and PACELINE_FAMILY asks for one"), "{error}");
}

#[test]
fn what_needs_no_peer_to_be_wrong() {
    let how = tcp("127.0.0.1", 5);
    let local = |rank, size| Setup { local_rank: Some(rank), local_size: Some(size), ..Setup::new(0, 2, how.clone()) };
    let interface = |text: &str| Setup { interface: Some(text.to_owned()), ..Setup::new(0, 2, how.clone()) };
    for (setup, want) in [
        (Setup::new(2, 2, how.clone()), "rank 2 of 2 doesn't exist: ranks are 0 to 1"),
        (Setup::new(0, 0, how.clone()), "a size of 0"),
        (Setup::new(0, usize::MAX, how.clone()), "a job has 1 to 1048576 ranks"),
        (Setup::new(0, 2, Rendezvous::Alone), "set PACELINE_RENDEZVOUS on all of them"),
        (local(2, 2), "local rank 2 of 2"),
        (local(0, 3), "local rank 0 of 3 local ranks, of 2 in all"),
        (interface("eth0,a b"), "interface filter"),
        (interface("eth0,^lo"), "interface filter"),
        (Setup { links: vec![], ..Setup::new(0, 2, how.clone()) }, "no kind of link"),
    ] {
        let error = attend(&setup, LONG).0.unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }
    let error = exchange(&Setup::alone(), &vec![0; MAX_ENTRY + 1], Instant::now()).unwrap_err();
    assert!(matches!(error, RendezvousError::EntryTooLong { .. }), "{error:?}");
}

#[test]
fn a_file_that_is_not_a_rendezvous_is_not_overwritten() {
    let path = fresh_path();
    std::fs::write(&path, "precious").unwrap();
    let outcomes = meet(ranks(2, &Rendezvous::File(path.clone())), SHORT);
    let texts: Vec<_> = errors(outcomes).iter().map(RendezvousError::to_string).collect();
    assert!(texts[0].contains("isn't a rendezvous's; not overwritten"), "{texts:?}");
    assert!(texts[1].contains("the file isn't a rendezvous's"), "{texts:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    std::fs::remove_file(path).unwrap();
    let path = fresh_path();
    let setup = Setup { interface: Some("nosuch".to_owned()), ..Setup::new(0, 2, Rendezvous::File(path.clone())) };
    let error = attend(&setup, SHORT).0.unwrap_err().to_string();
    assert!(error.contains("interface filter \"nosuch\" matches nothing; this host has lo ("), "{error}");
    assert!(!path.exists());
    let missing = Rendezvous::File(fresh_path().join("no/such/directory"));
    let error = attend(&Setup::new(0, 2, missing), SHORT).0.unwrap_err().to_string();
    assert!(error.contains("rank 0 writing its address to ") && error.contains("No such file"), "{error}");
}
