//! Where the root listens.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with, bind, getsockname, listen,
    socket_with, sockopt,
};

use super::{Family, Period, RendezvousError, Setup, TcpPlace};
use crate::tcp::interface::{self, Reach};

/// A port can be taken for a moment, by a root that is about to go or by a rank that tries to connect to the port and
/// was given it as its own; so a busy one is tried for this long.
const PATIENCE: Duration = Duration::from_secs(1);
const BACKLOG: i32 = 1024;

/// A socket that takes connections and blocks nobody.
pub(super) struct Listener {
    socket: OwnedFd,
    /// Its address in words.
    pub(super) place: String,
}

impl Listener {
    /// The next connection and where it comes from; `None` if none waits.
    pub(super) fn accept(&self) -> Result<Option<(OwnedFd, String)>, Errno> {
        loop {
            match acceptfrom_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok((socket, address)) => match address.map(SocketAddr::try_from) {
                    Some(Ok(address)) => {
                        let _ = sockopt::set_tcp_nodelay(&socket, true);
                        return Ok(Some((socket, plain(address).to_string())));
                    }
                    _ if is_ours(socket.as_fd()) => return Ok(Some((socket, "this host".to_owned()))),
                    _ => tracing::warn!("rendezvous at {}: dropped a process of another user", self.place),
                },
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The addresses at which other ranks may reach it, the likely ones first; loopback, for those of this host, last.
    pub(super) fn reachable(&self, setup: &Setup) -> Result<Vec<SocketAddr>, RendezvousError> {
        let failed = |problem: String| {
            let doing = "rank 0 looking for an address of its host to publish".to_owned();
            RendezvousError::System { doing, problem }
        };
        let bound = getsockname(&self.socket).ok().and_then(|address| SocketAddr::try_from(address).ok());
        let bound = bound.ok_or_else(|| failed("the socket has no port".to_owned()))?;
        let interfaces = interface::interfaces().map_err(|error| failed(error.to_string()))?;
        let chosen = interface::choose(&interfaces, &setup.filter()?, setup.family, Reach::OtherHosts);
        let chosen = chosen.map_err(|error| failed(error.to_string()))?;
        // A link-local address means nothing without an interface's number, which differs from host to host.
        let mut addresses: Vec<IpAddr> =
            chosen.iter().filter(|address| address.scope == 0).map(|address| address.ip).collect();
        addresses.extend([IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()]);
        addresses.retain(|address| setup.family.admits(*address) && (bound.is_ipv6() || address.is_ipv4()));
        let mut seen = HashSet::new();
        addresses.retain(|address| seen.insert(*address));
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, bound.port())).collect())
    }
}

/// An IPv4 address that an IPv6 socket shows mapped, as itself.
pub(super) fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Whether the process at the other end of a Unix socket runs as the same user.
pub(super) fn is_ours(socket: BorrowedFd<'_>) -> bool {
    // Not rustix's call: the process number in its result can't be 0, which it is for a process outside this container.
    let peer = nix::sys::socket::getsockopt(&socket, nix::sys::socket::sockopt::PeerCredentials);
    peer.is_ok_and(|peer| peer.uid() == rustix::process::geteuid().as_raw())
}

/// The first free port of `place`.
pub(super) fn at_place(place: &TcpPlace, family: Family, period: Period) -> Result<Listener, RendezvousError> {
    let address = address_to_bind(place, family);
    patiently(period, place.to_string(), || {
        first_free(place.ports.iter().map(|port| {
            let bound = bind_tcp(SocketAddr::new(address, *port));
            match bound {
                Err(Errno::ADDRNOTAVAIL) if !address.is_loopback() => {
                    tracing::warn!(
                        "rendezvous: {address} is not an address of rank 0's host; listening on all that it has, but \
                         unless {address} is translated to one of them the other ranks won't find it"
                    );
                    bind_tcp(SocketAddr::new(everywhere(family), *port))
                }
                bound => bound,
            }
        }))
    })
}

/// A port of the range in `setup`, or of the system's choice.
pub(super) fn on_any_port(setup: &Setup, period: Period) -> Result<Listener, RendezvousError> {
    let ports = setup.ports.clone().unwrap_or(0..=0);
    let words = match &setup.ports {
        Some(ports) => format!("ports {}-{} (PACELINE_PORTS)", ports.start(), ports.end()),
        None => "a port".to_owned(),
    };
    patiently(period, words, || {
        first_free(ports.clone().map(|port| match bind_tcp(SocketAddr::new(everywhere(setup.family), port)) {
            Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) if setup.family == Family::Any => {
                bind_tcp(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port))
            }
            bound => bound,
        }))
    })
}

/// The abstract Unix socket called `name`.
pub(super) fn on_this_host(name: &str, period: Period) -> Result<Listener, RendezvousError> {
    patiently(period, format!("local://{name}"), || {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags(), None)?;
        bind(&socket, &local_address(name)?)?;
        listen(&socket, BACKLOG)?;
        Ok(socket)
    })
}

/// A name is hashed, with the user, to fit whatever its length and to keep users apart.
pub(super) fn local_address(name: &str) -> Result<SocketAddrUnix, Errno> {
    let user = rustix::process::geteuid().as_raw();
    let hash = super::credentials::name_of_job(&format!("{user} {name}"));
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    SocketAddrUnix::new_abstract_name(format!("paceline-{hash}").as_bytes())
}

pub(super) fn flags() -> SocketFlags {
    SocketFlags::CLOEXEC | SocketFlags::NONBLOCK
}

/// An address is listened on as given. A name isn't resolved for that: rank 0's host often resolves its own name to a
/// loopback address, where no other host could reach it.
fn address_to_bind(place: &TcpPlace, family: Family) -> IpAddr {
    match &place.hosts[..] {
        [host] if host == "localhost" && family == Family::V6 => Ipv6Addr::LOCALHOST.into(),
        [host] if host == "localhost" => Ipv4Addr::LOCALHOST.into(),
        [host] => host.parse().unwrap_or(everywhere(family)),
        _ => everywhere(family),
    }
}

fn everywhere(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::Any | Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn bind_tcp(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = match socket_with(family, SocketType::STREAM, flags(), None) {
        Err(Errno::AFNOSUPPORT) if address.ip() == IpAddr::from(Ipv6Addr::UNSPECIFIED) => {
            return bind_tcp(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port()));
        }
        socket => socket?,
    };
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    bind(&socket, &SocketAddrAny::from(address))?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// The first that isn't busy.
fn first_free(mut attempts: impl Iterator<Item = Result<OwnedFd, Errno>>) -> Result<OwnedFd, Errno> {
    attempts.find(|attempt| !matches!(attempt, Err(Errno::ADDRINUSE))).unwrap_or(Err(Errno::ADDRINUSE))
}

fn patiently(
    period: Period,
    words: String,
    mut attempt: impl FnMut() -> Result<OwnedFd, Errno>,
) -> Result<Listener, RendezvousError> {
    let until = (Instant::now() + PATIENCE).min(period.deadline);
    loop {
        match attempt() {
            Ok(socket) => {
                let bound = getsockname(&socket).ok().and_then(|address| SocketAddr::try_from(address).ok());
                let place = bound.map_or(words, |address| plain(address).to_string());
                return Ok(Listener { socket, place });
            }
            Err(Errno::ADDRINUSE) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            Err(Errno::ADDRINUSE) => return Err(RendezvousError::PortInUse { address: words }),
            Err(error) => {
                let hint = if error == Errno::ACCESS { "; ports below 1024 need privileges" } else { "" };
                let problem = format!("{}{hint}", std::io::Error::from(error));
                return Err(RendezvousError::Listen { address: words, problem });
            }
        }
    }
}
