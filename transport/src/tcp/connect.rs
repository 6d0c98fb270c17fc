//! Reaching a peer at one of several addresses, before a deadline.
//!
//! All addresses are tried, each a little after the one before it or as soon as that has failed, and the first that
//! answers wins (the idea of RFC 8305). A refused or unreachable address is tried again: the peer may not have started
//! yet. Every wait is short enough to notice an abort.

#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::net::{SocketAddr, SocketAddrV6, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use super::interface::{Interface, interfaces, is_link_local_v6};
use crate::clock::{Clock, Time};
use crate::machine;

/// How long after one address the next is tried, if the first neither answers nor fails.
const STAGGER: Duration = Duration::from_millis(100);
/// How long one try of one address may take. A lost first packet is sent again after 1 and 3 s.
const TRY_LIMIT: Duration = Duration::from_secs(4);
/// How long after a failure an address is tried again: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));
/// The longest wait between two looks at the abort check.
const ABORT_LATENCY: Duration = Duration::from_millis(20);

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There was no address to try.
    #[error("there is no address to connect to")]
    NoCandidate,
    /// The caller's abort check said so.
    #[error("connecting to {} was aborted", Listed(.0))]
    Aborted(Vec<Tried>),
    /// The deadline passed.
    #[error("no connection within {:.1} s to {}", .waited.as_secs_f64(), Listed(.tried))]
    TimedOut {
        /// How long connections were tried.
        waited: Duration,
        /// What became of each address.
        tried: Vec<Tried>,
    },
    /// This process can't have another socket.
    #[error("making a socket to connect with: {error}{}", machine::files_hint(.error))]
    Socket {
        /// The reason.
        error: io::Error,
    },
}

/// What became of one address.
#[derive(Debug)]
pub struct Tried {
    /// The address.
    pub address: SocketAddr,
    /// How often a connection was begun.
    pub n_tries: u32,
    /// Why the last try failed; `None` if nothing answered or there was no try.
    pub error: Option<io::Error>,
}

/// Connects to the first of `candidates` that answers, best first, trying again until `deadline` (on [`Clock::Real`]).
///
/// A link-local IPv6 address without a scope is tried on every interface that may have it as a neighbour. `is_aborted`
/// is asked about fifty times a second. The stream blocks, as those of the standard library do, and closes on `exec`.
///
/// Candidates that answered later than the winner see a connection that is closed without a word.
///
/// # Errors
///
/// [`ConnectError`], which lists each address with its last failure.
pub fn connect(
    candidates: &[SocketAddr],
    deadline: Time,
    mut is_aborted: impl FnMut() -> bool,
) -> Result<(TcpStream, SocketAddr), ConnectError> {
    let start = Clock::Real.now();
    let mut attempts: Vec<Attempt> = (0..).zip(scoped(candidates)).map(|(i, at)| Attempt::new(at, start, i)).collect();
    if attempts.is_empty() {
        return Err(ConnectError::NoCandidate);
    }
    loop {
        let now = Clock::Real.now();
        if is_aborted() {
            return Err(ConnectError::Aborted(report(attempts)));
        }
        if now >= deadline {
            return Err(ConnectError::TimedOut { waited: now.since(start), tried: report(attempts) });
        }
        for i in 0..attempts.len() {
            if attempts[i].is_due(now) {
                attempts[i].begin(now)?;
                hurry_next(&mut attempts, i, now);
            }
        }
        wait(&attempts, deadline.since(now).min(ABORT_LATENCY));
        let now = Clock::Real.now();
        for i in 0..attempts.len() {
            if let Some(stream) = attempts[i].finish(now) {
                let Attempt { address, n_tries, .. } = attempts[i];
                tracing::debug!(%address, n_tries, "connected");
                return Ok((stream, address));
            }
            hurry_next(&mut attempts, i, now);
        }
    }
}

/// One address and how it goes there.
struct Attempt {
    address: SocketAddr,
    n_tries: u32,
    /// When to begin the next try.
    due: Time,
    pause: Duration,
    error: Option<Errno>,
    /// The try under way and when it began.
    socket: Option<(OwnedFd, Time)>,
}

impl Attempt {
    fn new(address: SocketAddr, start: Time, place: u32) -> Attempt {
        Attempt { address, n_tries: 0, due: start.after(STAGGER * place), pause: PAUSE.0, error: None, socket: None }
    }

    fn is_due(&self, now: Time) -> bool {
        self.socket.is_none() && self.due <= now
    }

    fn has_failed(&self) -> bool {
        self.n_tries > 0 && self.socket.is_none()
    }

    fn begin(&mut self, now: Time) -> Result<(), ConnectError> {
        self.n_tries += 1;
        let family = if self.address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP)) {
            Ok(socket) => match rustix::net::connect(&socket, &self.address) {
                Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => self.socket = Some((socket, now)),
                Err(errno) => self.fail(Some(errno), now),
            },
            Err(errno @ Errno::AFNOSUPPORT) => self.fail(Some(errno), now),
            Err(errno) => return Err(ConnectError::Socket { error: errno.into() }),
        }
        Ok(())
    }

    /// The stream if the try under way has succeeded. Ends a try that has failed or takes too long.
    fn finish(&mut self, now: Time) -> Option<TcpStream> {
        let (socket, began) = self.socket.as_ref()?;
        let is_late = now.since(*began) >= TRY_LIMIT;
        match outcome(socket) {
            None if !is_late => {}
            None => self.fail(None, now),
            Some(Err(errno)) => self.fail(Some(errno), now),
            Some(Ok(())) => return self.socket.take().map(|(socket, _)| TcpStream::from(socket)),
        }
        None
    }

    fn fail(&mut self, error: Option<Errno>, now: Time) {
        tracing::trace!(address = %self.address, n_tries = self.n_tries, ?error, "no connection");
        self.socket = None;
        self.error = error;
        self.due = now.after(self.pause);
        self.pause = (self.pause * 2).min(PAUSE.1);
    }
}

/// What became of a connection that was begun; `None` as long as nothing has.
pub(super) fn outcome(socket: &OwnedFd) -> Option<rustix::io::Result<()>> {
    let mut polled = [PollFd::new(socket, PollFlags::OUT)];
    if !matches!(poll(&mut polled, Some(&Timespec::default())), Ok(1..)) {
        return None;
    }
    let settle = || {
        sockopt::socket_error(socket)??;
        // A port among the ephemeral ones may be given to this very socket, which then connects to itself.
        let own = rustix::net::getsockname(socket)?;
        if rustix::net::getpeername(socket)? == Some(own) {
            return Err(Errno::CONNREFUSED);
        }
        rustix::io::ioctl_fionbio(socket, false)
    };
    Some(settle())
}

/// Lets the address behind a failed one be tried now, if it waits for its first try.
fn hurry_next(attempts: &mut [Attempt], failed: usize, now: Time) {
    if let [attempt, next, ..] = &mut attempts[failed..]
        && attempt.has_failed()
        && next.n_tries == 0
    {
        next.due = next.due.min(now);
    }
}

/// Waits until a try is decided, the next is due, or `limit` is over.
fn wait(attempts: &[Attempt], limit: Duration) {
    let now = Clock::Real.now();
    let idle = attempts.iter().filter(|attempt| attempt.socket.is_none());
    let limit = idle.fold(limit, |limit, attempt| limit.min(attempt.due.since(now)));
    let under_way = attempts.iter().filter_map(|attempt| attempt.socket.as_ref());
    let mut polled: Vec<PollFd<'_>> = under_way.map(|(socket, _)| PollFd::new(socket, PollFlags::OUT)).collect();
    let timeout = Timespec { tv_sec: 0, tv_nsec: limit.subsec_nanos().into() };
    // Whatever it says, each try is looked at next.
    let _ = poll(&mut polled, Some(&timeout));
}

/// The candidates, with one for each fitting interface in place of a link-local address without scope.
fn scoped(candidates: &[SocketAddr]) -> Vec<SocketAddr> {
    let is_bare = |address: &SocketAddr| {
        is_link_local_v6(address.ip()) && matches!(address, SocketAddr::V6(v6) if v6.scope_id() == 0)
    };
    if !candidates.iter().any(is_bare) {
        return candidates.to_vec();
    }
    scoped_by(candidates, &interfaces().unwrap_or_default(), is_bare)
}

fn scoped_by(
    candidates: &[SocketAddr],
    interfaces: &[Interface],
    is_bare: impl Fn(&SocketAddr) -> bool,
) -> Vec<SocketAddr> {
    let fits = |interface: &&Interface| {
        interface.is_up && !interface.is_loopback && interface.addresses.iter().any(|&ip| is_link_local_v6(ip))
    };
    let scopes: Vec<u32> = interfaces.iter().filter(fits).map(|interface| interface.index).collect();
    let expand = |&address: &SocketAddr| match address {
        SocketAddr::V6(v6) if is_bare(&address) && !scopes.is_empty() => {
            let on = |&scope: &u32| SocketAddr::from(SocketAddrV6::new(*v6.ip(), v6.port(), 0, scope));
            scopes.iter().map(on).collect()
        }
        _ => vec![address],
    };
    candidates.iter().flat_map(expand).collect()
}

fn report(attempts: Vec<Attempt>) -> Vec<Tried> {
    let tried = |Attempt { address, n_tries, error, .. }| Tried { address, n_tries, error: error.map(io::Error::from) };
    attempts.into_iter().map(tried).collect()
}

struct Listed<'a>(&'a [Tried]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(i, tried)| write!(f, "{}{tried}", if i > 0 { "; " } else { "" }))
    }
}

impl fmt::Display for Tried {
    /// The address, how often it was tried, how that ended, and what it may mean.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tried { address, n_tries, error } = self;
        let times = if *n_tries == 1 { "try" } else { "tries" };
        match error {
            _ if *n_tries == 0 => return write!(f, "{address} (not tried)"),
            None => return write!(f, "{address} ({n_tries} {times}: no answer; does a firewall drop packets?)"),
            Some(error) => write!(f, "{address} ({n_tries} {times}: {error}")?,
        }
        f.write_str(match error.as_ref().and_then(io::Error::raw_os_error).map(Errno::from_raw_os_error) {
            Some(Errno::CONNREFUSED) => "; nothing listens there, or a firewall refuses)",
            Some(Errno::NETUNREACH | Errno::HOSTUNREACH) => "; this host has no way there)",
            Some(Errno::PERM | Errno::ACCESS) => "; a firewall on this host refuses)",
            _ => ")",
        })
    }
}
