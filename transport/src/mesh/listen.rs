//! The listening side: a thread that takes calls, has each caller prove itself, and keeps the sockets until asked for.

use std::collections::HashMap;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::GroupId;
use crate::doorbell::Doorbell;
use crate::rendezvous::{Credentials, HandshakeError};

/// How long a caller may take to prove itself.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How many callers may be proving themselves at the same time; more are turned away.
const CALLERS_MAX: usize = 1024;

/// How long after a call that can't be taken the next try is.
const BREATH: Duration = Duration::from_millis(100);

/// What a caller says it wants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Hello {
    pub(super) group: GroupId,
    /// The caller's rank in the group.
    pub(super) from: u32,
    pub(super) purpose: Purpose,
}

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub(super) enum Purpose {
    /// The control path; over a Unix socket, shared memory may be tried on it.
    Control,
    /// One of the streams of a tcp link.
    Stream(u32),
    /// Handing over memory, by its number in the group.
    Memory(u64),
}

/// A call that was taken.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) socket: OwnedFd,
    /// Whether it came over the Unix socket.
    pub(super) local: bool,
}

/// Calls taken and not yet asked for.
#[derive(Default)]
struct Mailbox {
    calls: Mutex<HashMap<Hello, Call>>,
    changed: Condvar,
}

/// The listening sockets of a rank, and the thread behind them.
pub(super) struct Switchboard {
    mailbox: Arc<Mailbox>,
    hang_up: Doorbell,
    thread: Option<JoinHandle<()>>,
    process: u32,
}

/// The abstract Unix address of a name.
pub(super) fn unix_address(name: &[u8]) -> std::io::Result<UnixAddress> {
    UnixAddress::from_abstract_name(name)
}

/// A listening Unix socket under a name nobody else has.
pub(super) fn listen_unix() -> std::io::Result<(UnixListener, Vec<u8>)> {
    let random: String = crate::machine::random().iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("paceline-{random}").into_bytes();
    Ok((UnixListener::bind_addr(&unix_address(&name)?)?, name))
}

impl Switchboard {
    /// Starts to take calls.
    pub(super) fn start(
        credentials: Credentials,
        unix: Option<UnixListener>,
        tcp: Option<TcpListener>,
    ) -> std::io::Result<Switchboard> {
        let (mailbox, hang_up) = (Arc::new(Mailbox::default()), Doorbell::new()?);
        if let Some(listener) = &unix {
            listener.set_nonblocking(true)?;
        }
        if let Some(listener) = &tcp {
            listener.set_nonblocking(true)?;
        }
        let (theirs, bell) = (mailbox.clone(), hang_up.clone());
        let thread = std::thread::Builder::new()
            .name("paceline-listen".into())
            .spawn(move || take_calls(&credentials, &theirs, &bell, unix.as_ref(), tcp.as_ref()))?;
        Ok(Switchboard { mailbox, hang_up, thread: Some(thread), process: std::process::id() })
    }

    /// How many calls nobody has asked for yet.
    pub(super) fn waiting(&self) -> usize {
        self.mailbox.calls.lock().expect("no panic while held").len()
    }

    /// The call that says `hello`, waiting for it until `deadline`.
    pub(super) fn wait_for(&self, hello: &Hello, deadline: Instant) -> Option<Call> {
        let mut calls = self.mailbox.calls.lock().expect("no panic while held");
        loop {
            if let Some(call) = calls.remove(hello) {
                return Some(call);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            calls = self.mailbox.changed.wait_timeout(calls, left).expect("no panic while held").0;
        }
    }
}

impl Drop for Switchboard {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        // A forked child has no such thread.
        if self.process != std::process::id() {
            std::mem::forget(thread);
            return;
        }
        self.hang_up.ring();
        if thread.join().is_err() {
            tracing::error!("the listening thread had panicked");
        }
    }
}

fn take_calls(
    credentials: &Credentials,
    mailbox: &Arc<Mailbox>,
    hang_up: &Doorbell,
    unix: Option<&UnixListener>,
    tcp: Option<&TcpListener>,
) {
    let callers = Arc::new(());
    loop {
        let bell = hang_up.file();
        let mut files = vec![PollFd::new(&bell, PollFlags::IN)];
        files.extend(unix.map(|listener| PollFd::new(listener, PollFlags::IN)));
        files.extend(tcp.map(|listener| PollFd::new(listener, PollFlags::IN)));
        match rustix::event::poll(&mut files, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return tracing::error!("no more calls are taken: {error}"),
        }
        if files[0].revents().contains(PollFlags::IN) {
            return;
        }
        while let Some((socket, _)) = unix.and_then(|listener| taken(listener.accept())) {
            answer(credentials, mailbox, &callers, Call { socket: socket.into(), local: true }, "a local process");
        }
        while let Some((socket, address)) = tcp.and_then(|listener| taken(listener.accept())) {
            answer(credentials, mailbox, &callers, Call { socket: socket.into(), local: false }, &address.to_string());
        }
    }
}

/// A call, if one waits and can be taken. One that can't (mostly for want of files) keeps waiting, and so does this
/// thread: the poll would not.
fn taken<T>(accepted: std::io::Result<T>) -> Option<T> {
    use std::io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    accepted
        .inspect_err(|error| {
            if ![ConnectionAborted, Interrupted, WouldBlock].contains(&error.kind()) {
                tracing::error!("a call can't be taken: {error}");
                std::thread::sleep(BREATH);
            }
        })
        .ok()
}

/// Has a caller prove itself, in a thread of its own, so that a silent one holds up nobody.
fn answer(credentials: &Credentials, mailbox: &Arc<Mailbox>, callers: &Arc<()>, call: Call, from: &str) {
    if Arc::strong_count(callers) > CALLERS_MAX {
        return tracing::warn!("turned {from} away: {CALLERS_MAX} callers are proving themselves already");
    }
    let (credentials, mailbox, ticket, name) = (credentials.clone(), mailbox.clone(), callers.clone(), from.to_owned());
    let thread = std::thread::Builder::new().name("paceline-answer".into()).spawn(move || {
        let hello = credentials.accept(call.socket.as_fd(), Instant::now() + HANDSHAKE);
        match hello.map(|bytes| postcard::from_bytes::<Hello>(&bytes)) {
            Ok(Ok(hello)) => {
                mailbox.calls.lock().expect("no panic while held").insert(hello, call);
                mailbox.changed.notify_all();
            }
            Ok(Err(error)) => tracing::warn!("turned {name} away: its greeting can't be read ({error})"),
            // Whoever looks whether somebody listens here does that.
            Err(HandshakeError::Closed) => tracing::debug!("{name} called and said nothing"),
            Err(error) => tracing::warn!("turned {name} away: {error}"),
        }
        drop(ticket);
    });
    if let Err(error) = thread {
        tracing::warn!("turned {from} away: no thread to answer in ({error})");
    }
}
