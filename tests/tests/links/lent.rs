//! Memory that is lent to devices for the length of a call: nothing is copied, and nothing touches it afterwards.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use paceline_tests::world::Wire;
use paceline_transport::rdma::Traffic;
use paceline_transport::{Channel, ControlEvent, Endpoint, Fabric, LinkError, Loan, Rendezvous};

use crate::registered::{carry, pull, push};
use crate::traffic::{BOUND, Group, bytes, event};

const BYTES: usize = 3 << 20;

/// Lends a message's memory, which is dropped later than the loan in all of these tests.
fn lend(end: &mut Endpoint, memory: &mut [u8], is_target: bool) -> Loan {
    // SAFETY: the tests keep the memory, and ask links that have an unfinished message to forget it.
    unsafe { end.lend(memory.as_mut_ptr(), memory.len(), is_target) }.expect("software devices take loans")
}

#[test]
fn what_is_lent_is_fetched_to_where_it_belongs_until_the_loan_ends() {
    for wire in Wire::asked_for(&[Wire::Rdma, Wire::Queues]) {
        let mut group = Group::pair(wire);
        let (mut source, mut target) = (bytes(1, BYTES), vec![0; BYTES]);
        // SAFETY: no loan is made.
        assert!(unsafe { group.ends[0].lend(source.as_mut_ptr(), 1000, false) }.is_none(), "{wire:?}: not worth it");
        let loans = [lend(&mut group.ends[0], &mut source, false), lend(&mut group.ends[1], &mut target, true)];
        let before = Traffic::so_far();
        carry(&mut group, 1, &source, &mut target);
        let now = Traffic::so_far();
        assert_eq!((now.placed - before.placed, now.through_slots_since(&before)), (BYTES as u64, 0), "{wire:?}");
        drop(loans);
        let before = Traffic::so_far();
        carry(&mut group, 2, &source, &mut target);
        let now = Traffic::so_far();
        let copied = (now.copied_in - before.copied_in, now.copied_out - before.copied_out);
        assert_eq!((copied, now.placed), ((BYTES as u64, BYTES as u64), before.placed), "{wire:?}");
    }
}

/// What is only to be sent is never filled.
#[test]
fn a_lent_source_is_no_target() {
    for wire in Wire::asked_for(&[Wire::Rdma]) {
        let mut group = Group::pair(wire);
        let (mut source, mut target) = (bytes(1, BYTES), vec![0; BYTES]);
        let loans = [lend(&mut group.ends[0], &mut source, false), lend(&mut group.ends[1], &mut target, false)];
        let before = Traffic::so_far();
        carry(&mut group, 1, &source, &mut target);
        let now = Traffic::so_far();
        assert_eq!((now.landed - before.landed, now.placed), (BYTES as u64, before.placed), "{wire:?}");
        drop(loans);
    }
}

/// A call that fails takes its memory back in mid-message: no read changes what lies there next, though the link is looked at.
#[test]
fn memory_that_was_taken_back_is_not_written() {
    for wire in Wire::asked_for(&[Wire::Rdma, Wire::Queues]) {
        let mut group = Group::pair(wire);
        let (mut source, mut target) = (bytes(1, 8 * BYTES), vec![0; 8 * BYTES]);
        let _loan = lend(&mut group.ends[0], &mut source, false);
        let loan = lend(&mut group.ends[1], &mut target, true);
        let (mut sent, mut got) = (0, 0);
        push(&mut group.ends[0], 1, 1, &source, &mut sent);
        while group.ends[1].head(0, Channel(1)).unwrap().is_none() {
            group.rest();
        }
        pull(&mut group.ends[1], 1, &mut target, &mut got);
        assert!(got < target.len(), "{wire:?}: nothing is under way any more");
        group.ends[1].forget_loans();
        drop(loan);
        target.fill(7);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(300) {
            // Reads under way may have failed by now.
            let shown = group.ends[1].head(0, Channel(1));
            assert!(shown.is_err() || shown.is_ok_and(|head| head.is_some_and(|head| head.bytes.is_empty())));
        }
        assert!(target.iter().all(|byte| *byte == 7), "{wire:?}: a late read has filled it");
        group.ends[0].forget_loans();
    }
}

/// Who reads what has been taken back meanwhile gets an error, and not what lies there next.
#[test]
fn memory_that_was_taken_back_is_not_read() {
    for wire in Wire::asked_for(&[Wire::Rdma, Wire::Queues]) {
        let mut group = Group::pair(wire);
        let (mut source, mut target) = (bytes(1, BYTES), vec![0; BYTES]);
        let loan = lend(&mut group.ends[0], &mut source, false);
        let _loan = lend(&mut group.ends[1], &mut target, true);
        let (mut sent, mut got) = (0, 0);
        push(&mut group.ends[0], 1, 1, &source, &mut sent);
        group.ends[0].forget_loans();
        drop(loan);
        source.fill(7);
        let error = until_error(&mut group, 1, &mut target, &mut got);
        assert!(matches!(error, LinkError::Rdma(_)) && got == 0, "{wire:?}: {error}");
        assert!(target.iter().all(|byte| *byte == 0), "{wire:?}: something has been read");
        group.ends[1].forget_loans();
    }
}

/// Receives at `rank` until that fails.
fn until_error(group: &mut Group, rank: usize, target: &mut [u8], got: &mut usize) -> LinkError {
    let begin = Instant::now();
    let channel = Channel(1);
    loop {
        let end = &mut group.ends[rank];
        let peer = 1 - end.me();
        let news = end.head(peer, channel).map(|head| head.is_some());
        match news.and_then(|is_there| if is_there { end.recv_into(peer, channel, &mut target[*got..]) } else { Ok(0) })
        {
            Ok(news) => *got += news,
            Err(error) => return error,
        }
        assert!(*got < target.len() && begin.elapsed() < BOUND, "no error, and {got} bytes");
        std::thread::yield_now();
    }
}

const ROLE: &str = "PACELINE_TEST_LENDER";
const LENT_BYTES: usize = 256 << 20;

/// Not a test of its own: rank 1, in a process that `a_peer_that_dies_while_it_is_read` starts, which offers a message and waits
/// to be killed.
#[test]
fn a_process_to_be_killed() {
    let Ok(path) = std::env::var(ROLE) else { return };
    let mut end = Fabric::join(&Wire::Rdma.setup(1, 2, Rendezvous::File(path.into()))).unwrap().1;
    let mut source = vec![1; LENT_BYTES];
    let _loan = lend(&mut end, &mut source, false);
    push(&mut end, 1, 1, &source, &mut 0);
    end.notify(0, b"offered");
    std::thread::sleep(Duration::from_secs(60));
}

fn start() -> (Child, Endpoint) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("meeting");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "lent::a_process_to_be_killed"]).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.env(ROLE, &path).spawn().unwrap();
    (child, Fabric::join(&Wire::Rdma.setup(0, 2, Rendezvous::File(path))).unwrap().1)
}

#[test]
fn a_peer_that_dies_while_it_is_read_is_missed() {
    for wire in Wire::asked_for(&[Wire::Rdma]) {
        let (mut child, end) = start();
        let mut group = Group::of(wire, vec![end]);
        let mut target = vec![0; LENT_BYTES];
        let loan = lend(&mut group.ends[0], &mut target, true);
        assert_eq!(event(&mut group, 0), (1, ControlEvent::Notice(b"offered".to_vec())));
        let mut got = 0;
        while got == 0 {
            if !pull(&mut group.ends[0], 1, &mut target, &mut got) {
                group.rest();
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let begin = Instant::now();
        assert!(matches!(event(&mut group, 0), (1, ControlEvent::Died(_))));
        assert!(begin.elapsed() < Duration::from_secs(1), "took {:?}", begin.elapsed());
        let error = until_error(&mut group, 0, &mut target, &mut got);
        println!("{got} bytes had come: {error}");
        group.ends[0].forget_loans();
        drop(loan);
        assert!(target[..got].iter().all(|byte| *byte == 1));
    }
}
