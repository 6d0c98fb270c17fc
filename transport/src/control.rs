//! The control path between two ranks: short notices, leaving, and death, apart from the data.
//!
//! Each pair of ranks has one, whatever its link: a Unix or TCP socket between processes, two queues between threads. It
//! carries nothing while all goes well. Its end is how a peer's death is noticed: a process that dies closes its sockets,
//! and one that leaves in order says so first. A child that the peer has forked holds copies of its sockets, whose end then
//! doesn't show; on one host the process itself is watched as well.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, PidfdFlags};

use crate::doorbell::Doorbell;
use crate::sim::SimControl;
use crate::tcp;

/// What a peer said, or what became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlEvent {
    /// A message from the peer, as it was passed to `notify`.
    Notice(Vec<u8>),
    /// The peer has ended its part in order. What it sent before is still there to be read.
    Left,
    /// The peer is gone without a word; the text says how that showed.
    Died(String),
    /// The peer could not join the group.
    Failed {
        /// The ranks to look at.
        peers: Vec<usize>,
        /// Why.
        how: String,
    },
}

/// The longest notice.
pub const NOTICE_BYTES_MAX: usize = 16 << 10;

/// One end of a control path.
pub(crate) enum Control {
    Socket(SocketControl),
    Queue(QueueControl),
    Sim(SimControl),
}

impl Control {
    /// Sends a notice. What can't be sent at once is dropped: a notice is news, not data.
    pub(crate) fn notify(&mut self, notice: &[u8]) {
        assert!(notice.len() <= NOTICE_BYTES_MAX, "a notice of {} bytes", notice.len());
        match self {
            Control::Socket(socket) => socket.send(KIND_NOTICE, notice),
            Control::Queue(queue) => queue.send(ControlEvent::Notice(notice.to_vec())),
            Control::Sim(control) => control.notify(notice),
        }
    }

    /// The next event, without waiting.
    pub(crate) fn event(&mut self) -> Option<ControlEvent> {
        match self {
            Control::Socket(socket) => socket.event(),
            Control::Queue(queue) => queue.arriving.lock().expect("no panic while held").pop_front(),
            Control::Sim(control) => control.control_event(),
        }
    }

    /// Tells the peer that this end leaves in order.
    pub(crate) fn leave(&mut self) {
        match self {
            Control::Socket(socket) => socket.leave(),
            Control::Queue(queue) => queue.send(ControlEvent::Left),
            Control::Sim(control) => control.leave(),
        }
    }

    /// Whether the path may be used by another group once this one has ended.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, Control::Socket(socket) if !socket.process_ended && (!socket.ended || socket.left))
    }

    /// As [`Control::leave`], but the path is kept, for another group: whether all could be said.
    pub(crate) fn part(&mut self) -> bool {
        let Control::Socket(socket) = self else { return false };
        socket.send(KIND_LEFT, &[]);
        socket.unsent.is_empty()
    }

    /// Begins anew on a path that both ends have kept: what was said before the peer left is forgotten.
    pub(crate) fn meet_again(&mut self) {
        let Control::Socket(socket) = self else { return };
        while !socket.ended && socket.event().is_some() {}
        // A death that showed meanwhile shows again.
        (socket.ended, socket.left) = (false, false);
    }

    /// Tells the peer that this end could not join the group, for which `peers` are to blame. Nothing follows.
    pub(crate) fn give_up(&mut self, peers: &[usize], how: &str) {
        match self {
            Control::Socket(socket) => {
                let most = how.len().min(NOTICE_BYTES_MAX / 2);
                let end = (0..=most).rev().find(|end| how.is_char_boundary(*end)).unwrap_or(0);
                let few = &peers[..peers.len().min(PEERS_MAX)];
                socket.send(KIND_FAILED, &postcard::to_allocvec(&(few, &how[..end])).expect("plain data"));
            }
            Control::Queue(queue) => queue.send(ControlEvent::Failed { peers: peers.to_vec(), how: how.to_owned() }),
            Control::Sim(control) => control.leave(),
        }
    }

    /// What to watch while asleep.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Control::Socket(socket) => Some(socket.socket.as_fd()),
            Control::Queue(_) | Control::Sim(_) => None,
        }
    }

    /// The peer's process, to be watched as well; [`Control::process_ended`] is called when it becomes readable.
    pub(crate) fn process(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Control::Socket(socket) => socket.process.as_deref().map(AsFd::as_fd),
            Control::Queue(_) | Control::Sim(_) => None,
        }
    }

    /// The peer's process has ended, whoever holds its sockets.
    pub(crate) fn process_ended(&mut self) {
        if let Control::Socket(socket) = self {
            socket.process_ended = true;
        }
    }
}

const KIND_NOTICE: u8 = 1;
const KIND_LEFT: u8 = 2;
const KIND_FAILED: u8 = 3;
const PEERS_MAX: usize = 256;
const PREFIX_BYTES: usize = 5;

/// A control path over a stream socket.
pub(crate) struct SocketControl {
    socket: OwnedFd,
    /// The process at the other end, where the kernel says which that is.
    process: Option<Arc<OwnedFd>>,
    process_ended: bool,
    arrived: Vec<u8>,
    /// The end of a message for which there was no room.
    unsent: Vec<u8>,
    ended: bool,
    /// The last word was that the peer leaves.
    left: bool,
}

impl SocketControl {
    /// Takes over a connected socket, which becomes non-blocking. `is_local` says that it is a Unix socket, not TCP.
    pub(crate) fn new(socket: OwnedFd, is_local: bool) -> std::io::Result<SocketControl> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let process = if is_local { process_at(&socket).map(Arc::new) } else { None };
        if !is_local {
            tcp::prepare_control(&socket)?;
        }
        Ok(SocketControl::at(socket, process))
    }

    /// Takes over a non-blocking Unix socket, with the peer's process, as far as it is known.
    pub(crate) fn at(socket: OwnedFd, process: Option<Arc<OwnedFd>>) -> SocketControl {
        SocketControl {
            socket,
            process,
            process_ended: false,
            arrived: Vec::new(),
            unsent: Vec::new(),
            ended: false,
            left: false,
        }
    }

    /// The two ends of a new path, for [`SocketControl::at`].
    pub(crate) fn ends() -> std::io::Result<(OwnedFd, OwnedFd)> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
    }

    /// The process at the other end, as far as it is known.
    pub(crate) fn watched(&self) -> Option<Arc<OwnedFd>> {
        self.process.clone()
    }

    /// Sends what there is room for; the rest goes before the next message. A notice is dropped while another waits.
    fn send(&mut self, kind: u8, payload: &[u8]) {
        self.flush();
        if kind == KIND_NOTICE && !self.unsent.is_empty() {
            return tracing::debug!("a notice of {} bytes was dropped: its reader is behind", payload.len());
        }
        self.unsent.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        self.unsent.push(kind);
        self.unsent.extend_from_slice(payload);
        self.flush();
    }

    fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match rustix::net::send(&self.socket, &self.unsent, rustix::net::SendFlags::NOSIGNAL) {
                Ok(bytes) => drop(self.unsent.drain(..bytes)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(error) => {
                    tracing::debug!("{} bytes of control messages were not sent: {error}", self.unsent.len());
                    self.unsent.clear();
                }
            }
        }
    }

    fn event(&mut self) -> Option<ControlEvent> {
        loop {
            if let Some(event) = self.parse() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            self.flush();
            let mut buffer = [0u8; 4096];
            match rustix::io::read(&self.socket, &mut buffer) {
                Ok(0) => return Some(self.died("it closed its connection without leaving in order".into())),
                Ok(bytes) => self.arrived.extend_from_slice(&buffer[..bytes]),
                Err(rustix::io::Errno::AGAIN) if self.process_ended => {
                    return Some(self.died("its process has ended".into()));
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return None,
                Err(error) => {
                    return Some(self.died(format!("its connection failed: {}", std::io::Error::from(error))));
                }
            }
        }
    }

    fn died(&mut self, how: String) -> ControlEvent {
        self.ended = true;
        ControlEvent::Died(how)
    }

    fn parse(&mut self) -> Option<ControlEvent> {
        let prefix = self.arrived.first_chunk::<PREFIX_BYTES>()?;
        let bytes = u32::from_le_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]) as usize;
        let kind = prefix[4];
        if bytes > NOTICE_BYTES_MAX || !(KIND_NOTICE..=KIND_FAILED).contains(&kind) {
            self.arrived.clear();
            return Some(self.died(format!("it sent a control message of kind {kind} with {bytes} bytes")));
        }
        if self.arrived.len() < PREFIX_BYTES + bytes {
            return None;
        }
        let payload = self.arrived[PREFIX_BYTES..PREFIX_BYTES + bytes].to_vec();
        self.arrived.drain(..PREFIX_BYTES + bytes);
        match kind {
            KIND_NOTICE => return Some(ControlEvent::Notice(payload)),
            KIND_LEFT => (self.ended, self.left) = (true, true),
            _ => {
                self.ended = true;
                let (peers, how) = postcard::from_bytes(&payload)
                    .unwrap_or_else(|_| (Vec::new(), "it could not join the group".to_owned()));
                return Some(ControlEvent::Failed { peers, how });
            }
        }
        Some(ControlEvent::Left)
    }

    /// Says goodbye, and takes in what has arrived: a socket closed over unread data resets the connection, and the
    /// goodbye may be lost with it.
    fn leave(&mut self) {
        self.send(KIND_LEFT, &[]);
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
        let mut buffer = [0u8; 4096];
        while let Ok(1..) = rustix::io::read(&self.socket, &mut buffer) {}
    }
}

/// The process at the other end of a Unix socket; `None` if the kernel is too old to tell, or the process is in a
/// container that this one doesn't see into.
fn process_at(socket: &OwnedFd) -> Option<OwnedFd> {
    let peer = nix::sys::socket::getsockopt(socket, nix::sys::socket::sockopt::PeerCredentials).ok()?.pid();
    let opened = rustix::process::pidfd_open(Pid::from_raw(peer)?, PidfdFlags::empty());
    opened.inspect_err(|error| tracing::debug!("process {peer} can't be watched: {error}")).ok()
}

type Events = Arc<Mutex<VecDeque<ControlEvent>>>;

/// A control path between two threads of a process: each end owns the queue that it reads, and lends it to the other.
pub(crate) struct QueueControl {
    arriving: Events,
    leaving: Events,
    peer: Doorbell,
}

/// The queue that one rank reads.
#[derive(Clone, Default)]
pub(crate) struct Inbox {
    events: Events,
}

impl QueueControl {
    /// The end of whoever reads `mine`; the other end reads `theirs` and is woken by `peer`.
    pub(crate) fn new(mine: &Inbox, theirs: &Inbox, peer: Doorbell) -> QueueControl {
        QueueControl { arriving: mine.events.clone(), leaving: theirs.events.clone(), peer }
    }

    /// The two ends, for the owners of the two doorbells.
    pub(crate) fn pair(first: Doorbell, second: Doorbell) -> (QueueControl, QueueControl) {
        let (a, b) = (Inbox::default(), Inbox::default());
        (QueueControl::new(&a, &b, second), QueueControl::new(&b, &a, first))
    }

    fn send(&mut self, event: ControlEvent) {
        self.leaving.lock().expect("no panic while held").push_back(event);
        self.peer.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn sockets() -> (Control, Control) {
        let (a, b) = UnixStream::pair().unwrap();
        let end = |s: UnixStream| Control::Socket(SocketControl::new(s.into(), true).unwrap());
        (end(a), end(b))
    }

    fn queues() -> (Control, Control) {
        let (a, b) = QueueControl::pair(Doorbell::new().unwrap(), Doorbell::new().unwrap());
        (Control::Queue(a), Control::Queue(b))
    }

    #[test]
    fn notices_arrive_in_order_and_leaving_comes_last() {
        for (mut a, mut b) in [sockets(), queues()] {
            a.notify(b"one");
            a.notify(&[]);
            a.leave();
            drop(a);
            let events: Vec<_> = std::iter::from_fn(|| b.event()).collect();
            let want = [ControlEvent::Notice(b"one".to_vec()), ControlEvent::Notice(Vec::new()), ControlEvent::Left];
            assert_eq!(events, want);
        }
    }

    /// Over TCP, which takes a part of a message where there is no room for all of it.
    #[test]
    fn a_notice_that_finds_no_room_does_not_spoil_the_next() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let a = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let end = |socket: std::net::TcpStream| Control::Socket(SocketControl::new(socket.into(), false).unwrap());
        let (mut a, mut b) = (end(a), end(listener.accept().unwrap().0));
        let notice = |number: u32| number.to_le_bytes().repeat(3000);
        let (mut next, mut last) = (0, None);
        for _ in 0..3 {
            // Many more than there is room for; then more, until one of these arrives.
            (next..next + 2000).for_each(|number| a.notify(&notice(number)));
            next += 2000;
            let crowd = next;
            while last < Some(crowd) {
                a.notify(&notice(next));
                next += 1;
                assert!(next < crowd + 1_000_000, "notices are stuck after {last:?}");
                let Some(event) = b.event() else { continue };
                let ControlEvent::Notice(bytes) = event else { panic!("{event:?}") };
                let number = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                assert!(bytes == notice(number) && last < Some(number), "notice {number} after {last:?}");
                last = Some(number);
            }
        }
    }

    #[test]
    fn an_end_without_leaving_is_a_death() {
        let (a, mut b) = sockets();
        drop(a);
        assert!(matches!(b.event(), Some(ControlEvent::Died(_))));
        assert_eq!(b.event(), None, "a peer dies once");
    }

    #[test]
    fn giving_up_says_why_and_is_the_last_word() {
        for (mut a, mut b) in [sockets(), queues()] {
            a.give_up(&[7, 9], "rank 7 is gone");
            drop(a);
            let want = ControlEvent::Failed { peers: vec![7, 9], how: "rank 7 is gone".into() };
            assert_eq!(b.event(), Some(want));
            assert_eq!(b.event(), None);
        }
        let (mut a, mut b) = sockets();
        a.give_up(&vec![7; 9000], &"ä".repeat(9000));
        assert!(matches!(b.event(), Some(ControlEvent::Failed { peers, .. }) if peers.len() == PEERS_MAX));
    }

    #[test]
    fn a_goodbye_survives_what_its_sender_has_not_read() {
        let (mut a, mut b) = sockets();
        b.notify(&[1; 4096]);
        a.leave();
        drop(a);
        assert_eq!(b.event(), Some(ControlEvent::Left));
    }

    #[test]
    fn a_path_that_both_ends_keep_begins_anew() {
        let (mut a, mut b) = sockets();
        a.notify(b"old");
        for end in [&mut a, &mut b] {
            assert!(end.is_whole() && end.part());
        }
        a.meet_again();
        a.notify(b"new");
        b.meet_again();
        assert_eq!(b.event(), Some(ControlEvent::Notice(b"new".to_vec())));
        assert_eq!(a.event(), None);
        // One end may have seen the other leave before.
        assert!(a.part());
        assert_eq!(b.event(), Some(ControlEvent::Left));
        assert!(b.is_whole() && b.part());
        b.meet_again();
        a.meet_again();
        drop(a);
        assert!(matches!(b.event(), Some(ControlEvent::Died(_))), "and a death shows again");
        assert!(!b.is_whole());
    }

    #[test]
    fn nonsense_is_a_death_and_no_panic() {
        let (a, b) = UnixStream::pair().unwrap();
        rustix::io::write(&a, &[0xff; 64]).unwrap();
        let mut b = Control::Socket(SocketControl::new(b.into(), true).unwrap());
        assert!(matches!(b.event(), Some(ControlEvent::Died(how)) if how.contains("kind 255")));
    }
}
