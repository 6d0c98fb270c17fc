//! Several hosts on one machine: network namespaces, joined by virtual cables or a bridge.
//!
//! Two hosts share a cable; three or more hang on a bridge that lives in a namespace of its own. Nothing is made in the
//! machine's own network, and all of it goes with the namespaces.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;

use super::{tools, unique};

/// What the network looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Net {
    /// How many hosts.
    pub hosts: usize,
    /// How many interfaces each has: `eth0`, `eth1`, ..., each in a network of its own.
    pub interfaces: usize,
    /// Whether they have IPv4 addresses.
    pub v4: bool,
    /// Whether they have IPv6 addresses.
    pub v6: bool,
}

/// Network namespaces, removed when dropped.
#[derive(Debug)]
pub struct Namespaces {
    net: Net,
    hosts: Vec<String>,
    bridge: Option<String>,
}

/// A TCP socket of a process's network namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Socket {
    /// Its own address.
    pub local: SocketAddr,
    /// Whether it waits for connections; otherwise it has one.
    pub listens: bool,
}

fn ip(words: &str) {
    run("ip", words);
}

fn run(program: &str, words: &str) {
    let output = Command::new(program).args(words.split(' ')).output().expect("it was found");
    assert!(output.status.success(), "{program} {words}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Namespaces {
    /// Makes the network; `None`, with the reason printed, where that can't be.
    ///
    /// # Panics
    ///
    /// If root can't make it.
    #[must_use]
    pub fn make(net: Net) -> Option<Namespaces> {
        if !tools::found("ip") || !tools::is_root("making network namespaces") {
            return None;
        }
        assert!(2 <= net.hosts && net.hosts < 200, "{net:?}");
        let name = unique("paceline");
        let mut made = Namespaces { net, hosts: Vec::new(), bridge: None };
        for host in 0..net.hosts {
            made.hosts.push(made.namespace(&format!("{name}-{host}")));
        }
        if net.hosts > 2 {
            made.bridge = Some(made.namespace(&format!("{name}-bridge")));
        }
        for interface in 0..net.interfaces {
            made.lay_cables(interface);
            (0..net.hosts).for_each(|host| made.give_addresses(host, interface));
        }
        Some(made)
    }

    fn namespace(&self, name: &str) -> String {
        ip(&format!("netns add {name}"));
        // Addresses are to be there at once; nobody else has them.
        ip(&format!("-n {name} link set lo up"));
        name.to_owned()
    }

    fn lay_cables(&self, interface: usize) {
        let end = format!("eth{interface}");
        let Some(bridge) = &self.bridge else {
            let [a, b] = &self.hosts[..] else { unreachable!("more than two hosts have a bridge") };
            return ip(&format!("link add {end} netns {a} type veth peer name {end} netns {b}"));
        };
        ip(&format!("-n {bridge} link add br{interface} type bridge"));
        ip(&format!("-n {bridge} link set br{interface} up"));
        for (host, name) in self.hosts.iter().enumerate() {
            let port = format!("port{interface}-{host}");
            ip(&format!("link add {end} netns {name} type veth peer name {port} netns {bridge}"));
            ip(&format!("-n {bridge} link set {port} master br{interface} up"));
        }
    }

    fn give_addresses(&self, host: usize, interface: usize) {
        let name = &self.hosts[host];
        ip(&format!("-n {name} link set eth{interface} up"));
        if self.net.v4 {
            ip(&format!("-n {name} addr add {}/24 dev eth{interface}", self.v4(host, interface)));
        }
        if self.net.v6 {
            ip(&format!("-n {name} addr add {}/64 dev eth{interface} nodad", self.v6(host, interface)));
        }
    }

    /// A host's IPv4 address on an interface, whether it has one or not.
    #[must_use]
    pub fn v4(&self, host: usize, interface: usize) -> IpAddr {
        Ipv4Addr::new(10, 77, interface as u8, host as u8 + 1).into()
    }

    /// A host's IPv6 address on an interface, whether it has one or not.
    #[must_use]
    pub fn v6(&self, host: usize, interface: usize) -> IpAddr {
        Ipv6Addr::new(0xfd00, 0x77, 0, interface as u16, 0, 0, 0, host as u16 + 1).into()
    }

    /// The words in front of a command that is to run on a host.
    #[must_use]
    pub fn on(&self, host: usize) -> Vec<String> {
        ["ip", "netns", "exec", &self.hosts[host]].map(str::to_owned).into()
    }

    /// Limits what hosts send on an interface to so many Mbit/s; `false`, with the reason printed, where that can't be.
    ///
    /// # Panics
    ///
    /// If `tc` is here and fails.
    #[must_use]
    pub fn limit(&self, interface: usize, mbit_per_s: usize) -> bool {
        if !tools::found("tc") {
            return false;
        }
        for host in &self.hosts {
            let words = format!(
                "-n {host} qdisc add dev eth{interface} root tbf rate {mbit_per_s}mbit burst 128kb latency 50ms"
            );
            run("tc", &words);
        }
        true
    }

    /// Switches an interface off, without a word to anybody who uses it.
    pub fn cut(&self, host: usize, interface: usize) {
        ip(&format!("-n {} link set eth{interface} down", self.hosts[host]));
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in self.hosts.iter().chain(&self.bridge) {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// The TCP sockets in the network namespace of a process that listen or are connected.
///
/// # Panics
///
/// If the process is gone.
#[must_use]
pub fn sockets(pid: u32) -> Vec<Socket> {
    let mut sockets = Vec::new();
    for table in ["tcp", "tcp6"] {
        let text = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).expect("the process is there");
        sockets.extend(text.lines().skip(1).filter_map(socket));
    }
    sockets
}

/// A line of /proc/net/tcp or tcp6: the second word is the address, in 32-bit words of the machine's order; the fourth
/// the state.
fn socket(line: &str) -> Option<Socket> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (address, port) = words[1].split_once(':')?;
    let mut bytes = Vec::new();
    for word in address.as_bytes().chunks(8) {
        let number = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend(number.to_ne_bytes());
    }
    let ip = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical(),
    };
    let (established, listening) = ("01", "0A");
    let local = SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?);
    [established, listening].contains(&words[3]).then(|| Socket { local, listens: words[3] == listening })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        assert!(sockets(std::process::id()).contains(&Socket { local, listens: true }));
        let listener = std::net::TcpListener::bind("[::1]:0").unwrap();
        let local = listener.local_addr().unwrap();
        assert!(sockets(std::process::id()).contains(&Socket { local, listens: true }));
    }
}
