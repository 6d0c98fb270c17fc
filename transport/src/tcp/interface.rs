//! The addresses of this host, in the order in which a peer should try them.
//!
//! Which address reaches a peer is only known by reaching it (see [`super::connect`]); the order here makes the first
//! try the likely one. Networks that exist on every container host with the same addresses (`docker0`) come late, and
//! loopback only when there is nothing else, or all peers are on this host.

#![forbid(unsafe_code)]

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use nix::net::if_::InterfaceFlags;

pub use super::filter::{Filter, FilterError};

/// Beginnings of the names of interfaces that lead to containers and virtual machines of this host.
const INNER: [&str; 16] = [
    "docker", "br-", "virbr", "veth", "cni", "cali", "flannel", "cilium", "lxc", "lxd", "incus", "podman", "kube",
    "vnet", "vmnet", "vboxnet",
];

/// A network interface of this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its name, such as `eth0`.
    pub name: String,
    /// Its number on this host, which is also the scope of its link-local addresses.
    pub index: u32,
    /// Whether it is switched on and has a carrier.
    pub is_up: bool,
    /// Whether it leads back to this host.
    pub is_loopback: bool,
    /// Its addresses, in the kernel's order.
    pub addresses: Vec<IpAddr>,
}

/// An address of this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// The name of the interface that has it.
    pub interface: String,
    /// The address.
    pub ip: IpAddr,
    /// For a link-local IPv6 address the number of the interface, otherwise 0. It means nothing on other hosts.
    pub scope: u32,
}

/// Which addresses may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Family {
    /// IPv4 and IPv6.
    #[default]
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// Where the peers are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// All on this host: loopback comes first.
    ThisHost,
    /// On other hosts too: loopback is used only if there is nothing else.
    OtherHosts,
}

/// Why there is no address to use.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// The operating system didn't tell.
    #[error("listing this host's network interfaces: {0}")]
    List(#[from] std::io::Error),
    /// No interface has a name that the filter matches.
    #[error("interface filter {filter:?} matches nothing; this host has {known}")]
    Unmatched {
        /// The filter as the user wrote it.
        filter: String,
        /// The interfaces there are, with their addresses.
        known: String,
    },
    /// No interface that the filter matches is up and has an address of the family.
    #[error("no interface that is up{matching} has an {family} address; this host has {known}")]
    Unusable {
        /// `" and matches filter ..."`, or nothing if there is no filter.
        matching: String,
        /// The family that was asked for.
        family: Family,
        /// The interfaces there are, with their addresses.
        known: String,
    },
}

/// The interfaces of this host, in the order of their numbers.
///
/// # Errors
///
/// If the operating system refuses to list them.
pub fn interfaces() -> std::io::Result<Vec<Interface>> {
    let mut interfaces: Vec<Interface> = Vec::new();
    for entry in nix::ifaddrs::getifaddrs()? {
        // An IPv4 address may have a label, `eth0:1`, in place of its interface's name.
        let name = entry.interface_name.split(':').next().unwrap_or_default();
        let place = interfaces.iter().position(|interface| interface.name == name).unwrap_or_else(|| {
            interfaces.push(Interface {
                name: name.to_owned(),
                index: nix::net::if_::if_nametoindex(name).unwrap_or(0),
                is_up: entry.flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING),
                is_loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
                addresses: Vec::new(),
            });
            interfaces.len() - 1
        });
        let Some(address) = entry.address else {
            continue;
        };
        let ip = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
        interfaces[place].addresses.extend(ip.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip()))));
    }
    interfaces.sort_by_key(|interface| interface.index);
    Ok(interfaces)
}

/// The addresses to use, best first; never none.
///
/// Interfaces that are down aren't used. The others come in this order: those with an address that is valid beyond
/// their link, those with link-local addresses only, those that lead to containers and virtual machines of this host,
/// loopback. An interface's link-local addresses are used after all others of its kind. A filter that names interfaces
/// keeps loopback among them.
///
/// # Errors
///
/// [`InterfaceError::Unmatched`] and [`InterfaceError::Unusable`] list what this host has.
pub fn choose(
    interfaces: &[Interface],
    filter: &Filter,
    family: Family,
    reach: Reach,
) -> Result<Vec<Address>, InterfaceError> {
    let matching: Vec<&Interface> = interfaces.iter().filter(|interface| filter.matches(&interface.name)).collect();
    if matching.is_empty() && !filter.text().is_empty() {
        return Err(InterfaceError::Unmatched { filter: filter.text().to_owned(), known: list(interfaces) });
    }
    let mut ranked: Vec<(u32, Address)> = Vec::new();
    for interface in matching.into_iter().filter(|interface| interface.is_up) {
        for &ip in interface.addresses.iter().filter(|&&ip| family.admits(ip) && is_host(ip)) {
            let rank = rank(interface, ip, reach);
            let scope = if is_link_local_v6(ip) { interface.index } else { 0 };
            ranked.push((rank, Address { interface: interface.name.clone(), ip, scope }));
        }
    }
    ranked.sort_by_key(|&(rank, _)| rank);
    let keeps_loopback = reach == Reach::ThisHost || filter.names_some();
    let n_others = ranked.iter().filter(|(_, address)| !address.ip.is_loopback()).count();
    if !keeps_loopback && n_others > 0 {
        ranked.retain(|(_, address)| !address.ip.is_loopback());
    }
    if ranked.is_empty() {
        let text = filter.text();
        let matching = if text.is_empty() { String::new() } else { format!(" and matches filter {text:?}") };
        return Err(InterfaceError::Unusable { matching, family, known: list(interfaces) });
    }
    Ok(ranked.into_iter().map(|(_, address)| address).collect())
}

/// Smaller is better.
fn rank(interface: &Interface, ip: IpAddr, reach: Reach) -> u32 {
    let is_inner = INNER.iter().any(|prefix| interface.name.starts_with(prefix));
    match (interface.is_loopback, is_inner, is_link_local(ip)) {
        (true, ..) if reach == Reach::ThisHost => 0,
        (true, ..) => 5,
        (false, false, false) => 1,
        (false, false, true) => 2,
        (false, true, false) => 3,
        (false, true, true) => 4,
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(v4) if v4.is_link_local()) || is_link_local_v6(ip)
}

pub(super) fn is_link_local_v6(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

fn is_host(ip: IpAddr) -> bool {
    !ip.is_unspecified() && !ip.is_multicast()
}

/// The interfaces in one line, for an error.
fn list(interfaces: &[Interface]) -> String {
    let lines: Vec<String> = interfaces.iter().map(ToString::to_string).collect();
    if lines.is_empty() { "no interfaces".to_owned() } else { lines.join("; ") }
}

impl Address {
    /// The address with a port, as this host uses it.
    #[must_use]
    pub fn with_port(&self, port: u16) -> SocketAddr {
        match self.ip {
            IpAddr::V4(_) => SocketAddr::new(self.ip, port),
            IpAddr::V6(v6) => SocketAddrV6::new(v6, port, 0, self.scope).into(),
        }
    }
}

impl Family {
    /// Whether an address is of this family.
    #[must_use]
    pub fn admits(self, ip: IpAddr) -> bool {
        match self {
            Family::Any => true,
            Family::V4 => ip.is_ipv4(),
            Family::V6 => ip.is_ipv6(),
        }
    }

    /// The address that stands for all of this host's.
    pub(super) fn every(self) -> IpAddr {
        if self == Family::V4 { IpAddr::from([0; 4]) } else { Ipv6Addr::UNSPECIFIED.into() }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Family::Any => "IPv4 or IPv6",
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        })
    }
}

impl fmt::Display for Address {
    /// `192.0.2.2 (eth0)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.ip, self.interface)
    }
}

impl fmt::Display for Interface {
    /// `eth0 (192.0.2.2, fe80::1)`, with `down` in front of the addresses if it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = (!self.is_up).then(|| "down".to_owned());
        let mut words: Vec<String> = state.into_iter().chain(self.addresses.iter().map(IpAddr::to_string)).collect();
        if self.addresses.is_empty() {
            words.push("no address".to_owned());
        }
        write!(f, "{} ({})", self.name, words.join(", "))
    }
}
