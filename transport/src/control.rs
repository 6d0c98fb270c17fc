//! The control path between two ranks: short notices, leaving, and death, apart from the data.
//!
//! Each pair of ranks has one, whatever its link: a Unix or TCP socket between processes, two queues between threads. It
//! carries nothing while all goes well. Its end is how a peer's death is noticed: a process that dies closes its sockets,
//! and one that leaves in order says so first.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use crate::doorbell::Doorbell;
use crate::sim::SimControl;

/// What a peer said, or what became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlEvent {
    /// A message from the peer, as it was passed to `notify`.
    Notice(Vec<u8>),
    /// The peer has ended its part in order. What it sent before is still there to be read.
    Left,
    /// The peer is gone without a word; the text says how that showed.
    Died(String),
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
            Control::Socket(socket) => socket.send(KIND_LEFT, &[]),
            Control::Queue(queue) => queue.send(ControlEvent::Left),
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
}

const KIND_NOTICE: u8 = 1;
const KIND_LEFT: u8 = 2;
const PREFIX_BYTES: usize = 5;

/// A control path over a stream socket.
pub(crate) struct SocketControl {
    socket: OwnedFd,
    arrived: Vec<u8>,
    ended: bool,
}

impl SocketControl {
    /// Takes over a connected socket, which becomes non-blocking.
    pub(crate) fn new(socket: OwnedFd) -> std::io::Result<SocketControl> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(SocketControl { socket, arrived: Vec::new(), ended: false })
    }

    fn send(&mut self, kind: u8, payload: &[u8]) {
        let mut frame = Vec::with_capacity(PREFIX_BYTES + payload.len());
        frame.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        frame.push(kind);
        frame.extend_from_slice(payload);
        let sent = rustix::net::send(&self.socket, &frame, rustix::net::SendFlags::NOSIGNAL);
        match sent {
            Ok(bytes) if bytes == frame.len() => {}
            Ok(_) => self.ended = true,
            Err(error) => tracing::debug!("a control message of kind {kind} was not sent: {error}"),
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
            let mut buffer = [0u8; 4096];
            match rustix::io::read(&self.socket, &mut buffer) {
                Ok(0) => return Some(self.died("it closed its connection without leaving in order".into())),
                Ok(bytes) => self.arrived.extend_from_slice(&buffer[..bytes]),
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
        if bytes > NOTICE_BYTES_MAX || !(KIND_NOTICE..=KIND_LEFT).contains(&kind) {
            self.arrived.clear();
            return Some(self.died(format!("it sent a control message of kind {kind} with {bytes} bytes")));
        }
        if self.arrived.len() < PREFIX_BYTES + bytes {
            return None;
        }
        let payload = self.arrived[PREFIX_BYTES..PREFIX_BYTES + bytes].to_vec();
        self.arrived.drain(..PREFIX_BYTES + bytes);
        if kind == KIND_LEFT {
            self.ended = true;
            return Some(ControlEvent::Left);
        }
        Some(ControlEvent::Notice(payload))
    }
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
        let end = |s: UnixStream| Control::Socket(SocketControl::new(s.into()).unwrap());
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

    #[test]
    fn an_end_without_leaving_is_a_death() {
        let (a, mut b) = sockets();
        drop(a);
        assert!(matches!(b.event(), Some(ControlEvent::Died(_))));
        assert_eq!(b.event(), None, "a peer dies once");
    }

    #[test]
    fn nonsense_is_a_death_and_no_panic() {
        let (a, b) = UnixStream::pair().unwrap();
        rustix::io::write(&a, &[0xff; 64]).unwrap();
        let mut b = Control::Socket(SocketControl::new(b.into()).unwrap());
        assert!(matches!(b.event(), Some(ControlEvent::Died(how)) if how.contains("kind 255")));
    }
}
