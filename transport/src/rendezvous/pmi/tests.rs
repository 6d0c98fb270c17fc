//! A process manager played by the test.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::super::board::{Board, Pmi};
use super::*;

/// Answers the lines of one process; `arrive` is told of its barrier, `release` of the others'.
fn serve(stream: UnixStream, values: &Mutex<HashMap<String, String>>, arrive: &Sender<()>, release: &Receiver<()>) {
    let mut answers = stream.try_clone().unwrap();
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let part = |key: &str| line.split(' ').find_map(|part| part.strip_prefix(key)).map(str::to_owned);
        let answer = match part("cmd=").unwrap().as_str() {
            "init" => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0".to_owned(),
            "get_maxes" => "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=100".to_owned(),
            "get_my_kvsname" => "cmd=my_kvsname kvsname=space".to_owned(),
            "put" => {
                let value = part("value=").unwrap();
                assert!(value.len() < 100, "{value}");
                lock(values).insert(part("key=").unwrap(), value);
                "cmd=put_result rc=0 msg=success".to_owned()
            }
            "get" => match lock(values).get(&part("key=").unwrap()) {
                Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
                None => "cmd=get_result rc=-1 msg=key_not_found value=unknown".to_owned(),
            },
            "barrier_in" => {
                arrive.send(()).unwrap();
                if release.recv().is_err() {
                    return;
                }
                "cmd=barrier_out rc=0".to_owned()
            }
            other => panic!("{other}"),
        };
        // In two pieces, as a stream may deliver it.
        let (front, back) = answer.split_at(answer.len() / 2);
        answers.write_all(front.as_bytes()).unwrap();
        answers.write_all(format!("{back}\n").as_bytes()).unwrap();
    }
}

fn period(millis: u64) -> Period {
    let started = Instant::now();
    Period { started, deadline: started + Duration::from_millis(millis) }
}

fn wire(stream: &UnixStream) -> Wire {
    Wire::open(&PmiDoor::Descriptor(stream.as_raw_fd()), period(5000).deadline).unwrap()
}

fn session_on(stream: &UnixStream, process: usize) -> Session {
    let wire = wire(stream);
    let (begun, notices) = (Mutex::default(), Mutex::default());
    let name = wire.name().to_owned();
    let (door, pid, wire) = (PmiDoor::Descriptor(stream.as_raw_fd()), std::process::id(), Mutex::new(wire));
    Session { manager: Arc::new(Manager { door, pid, wire, name, begun, notices }), number: 0, process }
}

#[test]
fn a_notice_passes_through_the_manager() {
    let values = Mutex::default();
    let (root, root_far) = UnixStream::pair().unwrap();
    let (member, member_far) = UnixStream::pair().unwrap();
    let (arrive, arrived) = channel();
    let (release_root, root_released) = channel();
    let (release_member, member_released) = channel();
    std::thread::scope(|scope| {
        let (first, second) = (arrive.clone(), arrive);
        scope.spawn(|| serve(root_far, &values, &{ first }, &{ root_released }));
        scope.spawn(|| serve(member_far, &values, &{ second }, &{ member_released }));
        scope.spawn(move || {
            arrived.recv().unwrap();
            arrived.recv().unwrap();
            release_root.send(()).unwrap();
            release_member.send(()).unwrap();
        });
        let addresses: Vec<_> = (1..=9).map(|i| format!("10.0.0.{i}:1234").parse().unwrap()).collect();
        let notice = Notice { name: [3; 16], addresses };
        let sent = notice.clone();
        let publishing = scope.spawn(move || {
            let session = session_on(&root, 0);
            assert_eq!(session.name(), "space");
            Pmi::new(session, true).publish(&sent, period(5000)).unwrap();
        });
        let mut board = Pmi::new(session_on(&member, 1), false);
        let found = board.look(period(5000)).unwrap().unwrap();
        assert_eq!(found.name, notice.name);
        assert!(!found.addresses.is_empty() && notice.addresses.starts_with(&found.addresses));
        publishing.join().unwrap();
        drop(board);
        drop(member);
    });
}

#[test]
fn what_the_manager_does_wrong_is_told() {
    for (answers, want) in [
        ("", "the manager closed the connection"),
        ("cmd=maxes rc=0\n", "expected response_to_init, the manager answered \"cmd=maxes rc=0\""),
        (
            "cmd=response_to_init rc=-1\n",
            "expected response_to_init, the manager answered \"cmd=response_to_init rc=-1\"",
        ),
        ("cmd=response_to_init rc=0\ncmd=maxes\ncmd=my_kvsname\n", "the manager named no key-value space"),
    ] {
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(answers.as_bytes()).unwrap();
        far.shutdown(std::net::Shutdown::Write).unwrap();
        let error = Wire::open(&PmiDoor::Descriptor(near.as_raw_fd()), period(5000).deadline).err().unwrap();
        assert_eq!(error, want);
    }
    let error = Wire::open(&PmiDoor::Descriptor(987_654), period(5000).deadline).err().unwrap();
    assert!(error.starts_with("PMI_FD=987654 can't be used: Bad file descriptor"), "{error}");
}

#[test]
fn a_barrier_that_nobody_else_reaches_ends_at_the_deadline_and_the_connection_with_it() {
    let (near, far) = UnixStream::pair().unwrap();
    let (arrive, _arrived) = channel();
    let (release, released) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| serve(far, &Mutex::default(), &{ arrive }, &{ released }));
        let mut board = Pmi::new(session_on(&near, 1), false);
        let error = board.look(period(200)).unwrap_err().to_string();
        assert!(
            error.contains("process 1 waited 0.2 s for the others at the manager's barrier: no answer in"),
            "{error}"
        );
        let error = board.look(period(200)).unwrap_err().to_string();
        assert!(error.contains("not used any more since an earlier failure: no answer in time"), "{error}");
        drop(board);
        drop(near);
        drop(release);
    });
}
