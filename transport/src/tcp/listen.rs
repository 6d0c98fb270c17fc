//! Waiting for peers: one port on which they connect, from a range that a firewall may prescribe.

#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::str::FromStr;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use crate::machine;

use super::interface::{Address, Family};

/// Connections that may wait to be accepted: a whole job may connect at once. The kernel lowers it to its own limit.
const BACKLOG: i32 = 4096;

/// Ports from `first` to `last`, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// Why a text isn't a range of ports.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("port range {0:?}: write one port, such as `29500`, or two with the lower first, such as `29500-29531`")]
pub struct PortRangeError(String);

/// Where to wait.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// On all addresses of this host, of both families where the host has both and `family` admits them. Peers are
    /// told those of `advertised` that can be reached this way.
    Everywhere {
        /// Which families to wait on.
        family: Family,
        /// Addresses to tell the peers, best first.
        advertised: &'a [Address],
    },
    /// On one address, so that nobody can connect through other interfaces.
    At(&'a Address),
}

/// A port on which this rank waits.
#[derive(Debug)]
pub struct Listening {
    /// The socket; it blocks in `accept`.
    pub listener: TcpListener,
    /// Where peers reach it, best first. Link-local addresses have no scope: theirs means nothing to a peer.
    pub addresses: Vec<SocketAddr>,
}

/// Why no port could be had.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The only allowed port is in use.
    #[error(
        "port {} is in use on {ip}: something else listens there; `ss -ltnp sport = :{}` shows what; end it, or \
         choose another port or a range of ports",
        .port, .port
    )]
    InUse {
        /// The address that was to be waited on.
        ip: IpAddr,
        /// The port.
        port: u16,
    },
    /// All allowed ports are in use.
    #[error(
        "all {} ports from {range} are in use on {ip}: each process of a job needs one of its own on its host; end old \
         jobs (`ss -ltnp` shows who listens), or ask whoever keeps the firewall for a wider range",
        .range.len()
    )]
    AllInUse {
        /// The address that was to be waited on.
        ip: IpAddr,
        /// The ports that were tried.
        range: PortRange,
    },
    /// The operating system refused for another reason.
    #[error("waiting for connections on {address}: {error}{hint}")]
    Refused {
        /// The address and port.
        address: SocketAddr,
        /// The reason.
        error: io::Error,
        /// What to do about it; begins with `"; "` or is empty.
        hint: &'static str,
    },
}

/// Waits for connections on a free port of `ports`, the lowest, or on one that the system chooses.
///
/// # Errors
///
/// [`ListenError`] says which address and ports were tried, and what to try instead.
pub fn listen(place: Place<'_>, ports: Option<PortRange>) -> Result<Listening, ListenError> {
    let (listener, advertised, families) = match place {
        Place::At(address) => {
            let family = if address.ip.is_ipv4() { Family::V4 } else { Family::V6 };
            (on_free_port(&|port| address.with_port(port), family, ports)?, std::slice::from_ref(address), family)
        }
        Place::Everywhere { family, advertised } => {
            let every = |family: Family| move |port| SocketAddr::new(family.every(), port);
            match on_free_port(&every(family), family, ports) {
                // Without IPv6 in the kernel, or with it switched off, IPv4 is all there is.
                Err(ListenError::Refused { error, .. }) if family == Family::Any && lacks_ipv6(&error) => {
                    (on_free_port(&every(Family::V4), Family::V4, ports)?, advertised, Family::V4)
                }
                listener => (listener?, advertised, family),
            }
        }
    };
    let refused = |error| ListenError::Refused { address: SocketAddr::new(families.every(), 0), error, hint: "" };
    let port = listener.local_addr().map_err(refused)?.port();
    let reachable = advertised.iter().filter(|address| families.admits(address.ip));
    let addresses = reachable.map(|address| SocketAddr::new(address.ip, port)).collect();
    tracing::debug!(port, ?addresses, "waiting for connections");
    Ok(Listening { listener, addresses })
}

fn on_free_port(
    at: &dyn Fn(u16) -> SocketAddr,
    family: Family,
    ports: Option<PortRange>,
) -> Result<TcpListener, ListenError> {
    let range = ports.unwrap_or(PortRange { first: 0, last: 0 });
    for port in range.first..=range.last {
        match bind(at(port), family) {
            Ok(listener) => return Ok(listener),
            Err(Errno::ADDRINUSE) if ports.is_some() => {}
            Err(errno) => {
                let hint = hint(errno);
                return Err(ListenError::Refused { address: at(port), error: errno.into(), hint });
            }
        }
    }
    let ip = at(0).ip();
    Err(if range.len() == 1 {
        ListenError::InUse { ip, port: range.first }
    } else {
        ListenError::AllInUse { ip, range }
    })
}

/// `SO_REUSEADDR` lets the next job have the port while connections of the last one still linger; two listeners on one
/// port it doesn't allow.
fn bind(address: SocketAddr, family: Family) -> rustix::io::Result<TcpListener> {
    let domain = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket: OwnedFd =
        rustix::net::socket_with(domain, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::TCP))?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, family == Family::V6)?;
    }
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

fn lacks_ipv6(error: &io::Error) -> bool {
    [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::ACCESS => "; ports below 1024 need privileges: choose a higher one",
        Errno::ADDRNOTAVAIL => "; no interface of this host has the address (any more)",
        Errno::AFNOSUPPORT => "; this host's kernel has no IPv6",
        Errno::ADDRINUSE => "; no port is free: the range in net.ipv4.ip_local_port_range is used up",
        _ => machine::files_hint(&errno.into()),
    }
}

impl PortRange {
    /// The ports from `first` to `last`; `None` if `first` is 0 or above `last`.
    #[must_use]
    pub fn new(first: u16, last: u16) -> Option<PortRange> {
        (0 < first && first <= last).then_some(PortRange { first, last })
    }

    /// The lowest port.
    #[must_use]
    pub fn first(self) -> u16 {
        self.first
    }

    /// The highest port.
    #[must_use]
    pub fn last(self) -> u16 {
        self.last
    }

    fn len(self) -> usize {
        usize::from(self.last - self.first) + 1
    }
}

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<PortRange, PortRangeError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let ports = first.trim().parse().ok().zip(last.trim().parse().ok());
        ports.and_then(|(first, last)| PortRange::new(first, last)).ok_or_else(|| PortRangeError(text.to_owned()))
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}
