//! Where the ranks meet, and how a text says it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::{Hub, PmiPlace, RendezvousError, UniqueId};

/// Where the ranks meet.
#[derive(Clone, Debug)]
pub enum Rendezvous {
    /// Nowhere: there is one rank.
    Alone,
    /// At a TCP port of rank 0's host.
    Tcp(TcpPlace),
    /// Through a file on a file system that all hosts share; rank 0 listens on a port of the system's choice and writes
    /// its addresses there. The file is removed afterwards, and one that an earlier run left behind does no harm.
    File(PathBuf),
    /// At a Unix socket of this host with an abstract name, of which nothing is left behind.
    Local(String),
    /// In an object that threads of this process share.
    Hub(Hub),
    /// Through the process manager of MPICH or Intel MPI.
    Pmi(PmiPlace),
    /// Where one process listens since it made the id.
    Unique(Box<UniqueId>),
}

/// Where rank 0 listens: on the first of the ports that is free. The others try all, until a root of the right job
/// answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpPlace {
    /// Names or addresses of rank 0's host, at least one.
    pub hosts: Vec<String>,
    /// Ports, at least one, in the order in which they are tried.
    pub ports: Vec<u16>,
}

impl fmt::Display for TcpPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, host) in self.hosts.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
            write!(f, "{comma}{open}{host}{close}:{}", self.ports[0])?;
            if let [_, .., last] = self.ports[..] {
                write!(f, "-{last}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Rendezvous {
    type Err = RendezvousError;

    /// Reads `tcp://host:port`, `tcp://[IPv6]:port`, `file:///path`, a path, or `local://name`.
    fn from_str(text: &str) -> Result<Rendezvous, RendezvousError> {
        let refuse = |problem: String| RendezvousError::Place { given: text.to_owned(), problem };
        match text.split_once("://") {
            Some(("tcp", rest)) => {
                let (host, port) = host_and_port(rest).map_err(refuse)?;
                Ok(Rendezvous::Tcp(TcpPlace { hosts: vec![host], ports: vec![port] }))
            }
            Some(("file", path)) if 1 < path.len() && path.starts_with('/') => Ok(Rendezvous::File(path.into())),
            Some(("file", _)) => Err(refuse("the path must be absolute, with three slashes".to_owned())),
            Some(("local", name)) if !name.is_empty() => Ok(Rendezvous::Local(name.to_owned())),
            Some(("local", _)) => Err(refuse("the name is missing".to_owned())),
            Some((scheme, _)) => Err(refuse(format!("{scheme}:// is not known"))),
            None if text.is_empty() => Err(refuse("it is empty".to_owned())),
            None if !text.contains('/') && host_and_port(text).is_ok() => {
                Err(refuse(format!("did you mean tcp://{text}?")))
            }
            None => Ok(Rendezvous::File(text.into())),
        }
    }
}

fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or("the bracket isn't closed")?;
            let host = host.parse::<std::net::Ipv6Addr>().map_err(|_| format!("{host} is not an IPv6 address"))?;
            (host.to_string(), rest.strip_prefix(':').ok_or("the port is missing")?)
        }
        None => {
            let (host, port) = text.rsplit_once(':').ok_or("the port is missing")?;
            if host.contains(':') {
                return Err("an IPv6 address needs brackets: tcp://[::1]:29500".to_owned());
            }
            (host.to_owned(), port)
        }
    };
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == '/' || c == '@') {
        return Err("the host is missing or not a name".to_owned());
    }
    match port.parse() {
        Ok(port) if port != 0 => Ok((host, port)),
        _ => Err(format!("{port:?} is not a port, 1 to 65535")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        for (text, want) in [
            ("tcp://node1:29500", "node1:29500"),
            ("tcp://10.0.0.1:1", "10.0.0.1:1"),
            ("tcp://[fd00::2]:65535", "[fd00::2]:65535"),
        ] {
            let Rendezvous::Tcp(place) = text.parse().unwrap() else { panic!("{text} is tcp") };
            assert_eq!(place.to_string(), want);
        }
        for (text, want) in [("file:///tmp/x", "/tmp/x"), ("/tmp/x", "/tmp/x"), ("./x:1", "./x:1"), ("meet", "meet")] {
            let Rendezvous::File(path) = text.parse().unwrap() else { panic!("{text} is a file") };
            assert_eq!(path, PathBuf::from(want));
        }
        assert!(matches!("local://a b".parse().unwrap(), Rendezvous::Local(name) if name == "a b"));
    }

    #[test]
    fn what_is_no_place_says_why() {
        for (text, why) in [
            ("", "empty"),
            ("tcp://node1", "port is missing"),
            ("tcp://node1:", "\"\" is not a port"),
            ("tcp://node1:0", "not a port"),
            ("tcp://node1:65536", "not a port"),
            ("tcp://:5", "host is missing"),
            ("tcp://a b:5", "host is missing"),
            ("tcp://node1:5/path", "not a port"),
            ("tcp://fd00::2:5", "needs brackets"),
            ("tcp://[fd00::2:5", "bracket"),
            ("tcp://[fd00::2]", "port is missing"),
            ("tcp://[node1]:5", "not an IPv6 address"),
            ("file://tmp/x", "absolute"),
            ("file:///", "absolute"),
            ("local://", "name is missing"),
            ("http://x:80", "http:// is not known"),
            ("node1:29500", "did you mean tcp://node1:29500?"),
        ] {
            let error = text.parse::<Rendezvous>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
