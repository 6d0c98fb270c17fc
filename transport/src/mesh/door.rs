//! The doors of other ranks: opening them, and finding out that nobody is behind them any more.
//!
//! A rank listens before it tells anyone where, so a refusal is no reason to wait for it, as it is at the rendezvous.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::clock::Clock;
use crate::tcp::connect::{ConnectError, Tried, connect};

/// How long refusals are given the benefit of the doubt.
const REFUSALS: Duration = Duration::from_millis(500);
/// How long one look at a door takes at most.
const LOOK: Duration = Duration::from_millis(200);
/// How long a door with too many callers in front is left alone.
const PAUSE: Duration = Duration::from_millis(10);

/// A connection to the Unix socket called `name`. While too many wait there, so does this.
pub(super) fn open_local(name: &[u8], deadline: Instant) -> rustix::io::Result<OwnedFd> {
    loop {
        match try_local(name) {
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            Err(error) => return Err(error),
            Ok(socket) => {
                rustix::io::ioctl_fionbio(&socket, false)?;
                return Ok(socket);
            }
        }
    }
}

/// Without waiting: `connect` would, as long as a stopped process doesn't take the calls that it has.
fn try_local(name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    Ok(socket)
}

/// Whether nobody listens at the Unix socket called `name`.
pub(super) fn is_local_shut(name: &[u8]) -> bool {
    matches!(try_local(name), Err(Errno::CONNREFUSED))
}

/// A connection to one of the addresses, or why there is none.
pub(super) fn open_tcp(addresses: &[SocketAddr], deadline: Instant) -> Result<(OwnedFd, SocketAddr), ConnectError> {
    loop {
        match connect_within(addresses, deadline.saturating_duration_since(Instant::now()).min(REFUSALS)) {
            Err(ConnectError::TimedOut { tried, .. }) if !all_refused(&tried) && Instant::now() < deadline => {}
            other => return other,
        }
    }
}

/// Whether every address refuses connections. One that doesn't answer may be behind a link that is down.
pub(super) fn is_tcp_shut(addresses: &[SocketAddr]) -> bool {
    match connect_within(addresses, LOOK) {
        Err(ConnectError::TimedOut { tried, .. }) => all_refused(&tried),
        _ => false,
    }
}

fn connect_within(addresses: &[SocketAddr], limit: Duration) -> Result<(OwnedFd, SocketAddr), ConnectError> {
    let (socket, address) = connect(addresses, Clock::Real.now().after(limit), || false)?;
    Ok((socket.into(), address))
}

fn all_refused(tried: &[Tried]) -> bool {
    let refused = |tried: &Tried| {
        let error = tried.error.as_ref().and_then(std::io::Error::raw_os_error);
        error == Some(Errno::CONNREFUSED.raw_os_error())
    };
    !tried.is_empty() && tried.iter().all(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::listen::listen_unix;

    #[test]
    fn a_local_door_is_shut_when_its_owner_is_gone() {
        let (listener, name) = listen_unix().unwrap();
        assert!(!is_local_shut(&name));
        assert!(open_local(&name, Instant::now()).is_ok());
        drop(listener);
        assert!(is_local_shut(&name));
        assert!(matches!(open_local(&name, Instant::now()), Err(Errno::CONNREFUSED)));
    }

    /// A process that is stopped takes no calls; that must hold up nobody beyond the deadline, nor mean that it is gone.
    #[test]
    fn a_crowded_door_is_not_shut() {
        let (_listener, name) = listen_unix().unwrap();
        let mut crowd = Vec::new();
        let last = loop {
            match try_local(&name) {
                Ok(socket) => crowd.push(socket),
                Err(error) => break error,
            }
        };
        assert_eq!(last, Errno::AGAIN);
        assert!(!is_local_shut(&name));
        let start = Instant::now();
        assert!(matches!(open_local(&name, start + 5 * PAUSE), Err(Errno::AGAIN)));
        assert!(start.elapsed() >= 5 * PAUSE);
    }

    #[test]
    fn a_tcp_door_is_shut_when_all_addresses_refuse() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(!is_tcp_shut(&[address]));
        drop(listener);
        assert!(is_tcp_shut(&[address]));
        let start = Instant::now();
        assert!(open_tcp(&[address], start + Duration::from_secs(60)).is_err());
        assert!(start.elapsed() < Duration::from_secs(10), "a refusal is not waited for until the deadline");
    }
}
