//! Ranks that meet.

use super::*;

const LIMIT: Duration = Duration::from_secs(10);

#[test]
fn everyone_gets_everyones_bytes() {
    for size in [1, 2, 3, 9] {
        for how in every_kind(size) {
            assert_all_met(meet(ranks(size, &how), LIMIT), size);
            if let Rendezvous::File(path) = &how {
                assert!(!path.exists(), "{path:?} is left behind");
            }
        }
    }
    assert_eq!(exchange(&Setup::alone(), b"x", Instant::now()).unwrap().entries, [b"x"]);
}

#[test]
fn job_numbers_differ() {
    let how = Rendezvous::Local(fresh_name());
    let jobs: Vec<_> = (0..2).map(|_| meet(ranks(2, &how), LIMIT).remove(0).0.unwrap().job).collect();
    assert_ne!(jobs[0], jobs[1]);
}

/// A rank that is quick may meet again before the root has told everyone of the last time.
#[test]
fn meetings_may_follow_each_other() {
    for how in every_kind(3) {
        let threads: Vec<_> = ranks(3, &how)
            .into_iter()
            .map(|setup| std::thread::spawn(move || (0..20).map(|_| attend(&setup, LIMIT)).collect::<Vec<_>>()))
            .collect();
        let mut outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap().into_iter()).collect();
        for _ in 0..20 {
            assert_all_met(outcomes.iter_mut().map(|rank| rank.next().unwrap()).collect(), 3);
        }
    }
}

#[test]
fn members_may_come_long_before_the_root() {
    for how in [tcp("127.0.0.1", free_port()), Rendezvous::Local(fresh_name()), Rendezvous::File(fresh_path())] {
        let mut setups = ranks(3, &how);
        let root = setups.remove(0);
        let members = std::thread::spawn(move || meet(setups, LIMIT));
        if let Rendezvous::Tcp(place) = &how {
            // The port is busy for a while, so the root is kept waiting too.
            let busy = TcpListener::bind((Ipv4Addr::LOCALHOST, place.ports[0])).unwrap();
            drop(busy.accept().unwrap());
        }
        let mut outcomes = members_and(members, root);
        assert_eq!(outcomes.len(), 3);
        outcomes.rotate_right(1);
        assert_all_met(outcomes, 3);
    }
}

fn members_and(members: std::thread::JoinHandle<Vec<Outcome>>, root: Setup) -> Vec<Outcome> {
    let first = attend(&root, LIMIT);
    let mut outcomes = members.join().unwrap();
    outcomes.push(first);
    outcomes
}

/// torchrun's store holds the first port; another job's root the second.
#[test]
fn a_taken_port_is_passed_over_when_several_may_be_tried() {
    let store = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let first = store.local_addr().unwrap().port();
    let how = Rendezvous::Tcp(TcpPlace {
        hosts: vec!["localhost".to_owned()],
        ports: (first..=first.saturating_add(15)).collect(),
    });
    let jobs = ["one", "two"].map(|job| {
        let mut setups = ranks(3, &how);
        setups.iter_mut().for_each(|setup| setup.job_name = job.to_owned());
        std::thread::spawn(move || meet(setups, LIMIT))
    });
    // The store takes connections and closes them, as torch's does with what it doesn't understand.
    store.set_nonblocking(true).unwrap();
    while !jobs.iter().all(|job| job.is_finished()) {
        drop(store.accept());
        std::thread::yield_now();
    }
    for job in jobs {
        assert_all_met(job.join().unwrap(), 3);
    }
}

#[test]
fn a_file_that_an_earlier_run_left_does_no_harm() {
    let foreign = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let silent = foreign.local_addr().unwrap();
    let name = "ab".repeat(16);
    for address in [format!("127.0.0.1:{}", free_port()), silent.to_string()] {
        let path = fresh_path();
        std::fs::write(&path, format!("paceline-rendezvous-1/{name}/{address}\n")).unwrap();
        let mut setups = ranks(3, &Rendezvous::File(path.clone()));
        let root = setups.remove(0);
        let members = std::thread::spawn(move || meet(setups, LIMIT));
        if address == silent.to_string() {
            // A member is at the wrong place by now, and is let go.
            drop(foreign.accept().unwrap());
        }
        let mut outcomes = members_and(members, root);
        outcomes.rotate_right(1);
        assert_all_met(outcomes, 3);
        assert!(!path.exists());
        foreign.set_nonblocking(true).unwrap();
        while foreign.accept().is_ok() {}
        foreign.set_nonblocking(false).unwrap();
    }
}

#[test]
fn ranks_of_one_token_meet() {
    for how in [tcp("127.0.0.1", free_port()), Rendezvous::Local(fresh_name()), Rendezvous::File(fresh_path())] {
        let mut setups = ranks(3, &how);
        setups.iter_mut().for_each(|setup| setup.token = Token::new("correct horse"));
        assert_all_met(meet(setups, LIMIT), 3);
    }
}

#[test]
fn a_listening_port_stays_in_its_range() {
    let port = free_port();
    let mut setups = ranks(2, &Rendezvous::File(fresh_path()));
    setups.iter_mut().for_each(|setup| setup.ports = Some(port..=port));
    let listener =
        listen::on_any_port(&setups[0], Period { started: Instant::now(), deadline: Instant::now() + LIMIT });
    let addresses = listener.unwrap().reachable(&setups[0]).unwrap();
    assert!(addresses.iter().all(|address| address.port() == port), "{addresses:?}");
    for (family, v4) in [(Family::V4, true), (Family::V6, false)] {
        setups[0].family = family;
        let listener =
            listen::on_any_port(&setups[0], Period { started: Instant::now(), deadline: Instant::now() + LIMIT });
        let addresses = listener.unwrap().reachable(&setups[0]).unwrap();
        assert!(addresses.iter().all(|address| address.is_ipv4() == v4), "{addresses:?}");
    }
}

#[test]
fn ranks_of_one_process_find_what_they_share() {
    let job = [7; 16];
    let hub = Hub::of_job(job, 4);
    let first = hub.share("lane 0", 2, || 5_u32);
    let second = Hub::of_job(job, 4).share("lane 0", 2, || 6_u32);
    assert!(std::sync::Arc::ptr_eq(&first, &second));
    assert_eq!(*hub.share("lane 0", 1, || 8_u32), 8, "the name is free again");
    assert_ne!(*Hub::of_job([8; 16], 4).share("lane 0", 1, || 9_u32), 5);
}

/// The rank that is root is one of the process that made the id, whatever its number.
#[test]
fn with_a_unique_id() {
    for size in [1, 2, 5] {
        let id = UniqueId::open(&Setup::alone()).unwrap();
        let theirs = UniqueId::from_bytes(&id.to_bytes()).unwrap();
        let setups = (0..size).map(|rank| Setup::with_id(rank, size, &theirs)).collect();
        assert_all_met(meet(setups, Duration::from_secs(10)), size);
        assert!(id.take_listener().is_none(), "the listener is closed");
    }
    let id = UniqueId::open(&Setup::alone()).unwrap();
    let root = comes_first(Setup::with_id(2, 3, &id), &id, Duration::from_secs(10));
    let others = meet(vec![Setup::with_id(0, 3, &id), Setup::with_id(1, 3, &id)], Duration::from_secs(10));
    assert_all_met(others.into_iter().chain([root.join().unwrap()]).collect(), 3);
}

/// Of the process that made the id, the rank that becomes root.
fn comes_first(setup: Setup, id: &UniqueId, limit: Duration) -> std::thread::JoinHandle<Outcome> {
    let root = std::thread::spawn(move || attend(&setup, limit));
    while id.is_listener_here() {
        std::thread::yield_now();
    }
    root
}

#[test]
fn without_the_ids_secret() {
    let id = UniqueId::open(&Setup::alone()).unwrap();
    let mut guessed = Setup::with_id(1, 2, &id);
    guessed.token = Token::new("12345678");
    let root = comes_first(Setup::with_id(0, 2, &id), &id, Duration::from_secs(1));
    let stranger = attend(&guessed, Duration::from_secs(1));
    let root = root.join().unwrap();
    assert!(matches!(root.0, Err(RendezvousError::Incomplete { .. })), "{root:?}");
    let Err(error) = &stranger.0 else { panic!("it was let in") };
    assert!(error.to_string().contains("authentication failed") || error.to_string().contains("no answer"), "{error}");
}
