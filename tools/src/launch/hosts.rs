//! A list of hosts with how many ranks each: `a:2,b:2`.

use std::str::FromStr;

/// The most ranks that are started on one host.
pub const RANKS_MAX: usize = 4096;

/// Hosts in rank order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hosts(pub Vec<Host>);

/// A host and its share of the ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// Its name or address.
    pub name: String,
    /// How many ranks run there.
    pub ranks: usize,
}

impl Hosts {
    /// How many ranks there are on all hosts.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.0.iter().map(|host| host.ranks).sum()
    }

    /// How many ranks each host has, if all have equally many.
    #[must_use]
    pub fn even(&self) -> Option<usize> {
        let first = self.0[0].ranks;
        self.0.iter().all(|host| host.ranks == first).then_some(first)
    }

    /// The names with something between them.
    #[must_use]
    pub fn names(&self, between: &str) -> String {
        self.0.iter().map(|host| host.name.as_str()).collect::<Vec<_>>().join(between)
    }
}

impl FromStr for Hosts {
    type Err = String;

    fn from_str(text: &str) -> Result<Hosts, String> {
        let hosts: Vec<Host> = text.split(',').map(host).collect::<Result<_, String>>()?;
        for (place, host) in hosts.iter().enumerate() {
            if hosts[..place].iter().any(|other| other.name == host.name) {
                return Err(format!("{} is there twice", host.name));
            }
        }
        Ok(Hosts(hosts))
    }
}

/// A host, an IPv6 address being in brackets if a number follows.
fn host(text: &str) -> Result<Host, String> {
    let text = text.trim();
    let (name, ranks) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, "")) => (address, None),
        Some((address, rest)) => (address, Some(rest.strip_prefix(':').ok_or("a ':' must follow the ']'")?)),
        None if text.matches(':').count() > 1 => (text, None),
        None => match text.split_once(':') {
            Some((name, ranks)) => (name, Some(ranks)),
            None => (text, None),
        },
    };
    let sound = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
    if name.is_empty() || name.starts_with('-') || !name.chars().all(sound) {
        return Err(format!("'{text}' is no host with its number of ranks, such as node1:2"));
    }
    let ranks = match ranks.map(str::parse::<usize>) {
        None => 1,
        Some(Ok(ranks)) if (1..=RANKS_MAX).contains(&ranks) => ranks,
        Some(_) => return Err(format!("'{text}': a host takes 1 to {} ranks", RANKS_MAX)),
    };
    Ok(Host { name: name.to_string(), ranks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_hosts() {
        let rows: [(&str, &[(&str, usize)]); 5] = [
            ("a:2,b:2", &[("a", 2), ("b", 2)]),
            ("a, b:3", &[("a", 1), ("b", 3)]),
            ("10.0.0.1:4", &[("10.0.0.1", 4)]),
            ("[fe80::1%eth0]:2,fd00::2", &[("fe80::1%eth0", 2), ("fd00::2", 1)]),
            ("[::1]", &[("::1", 1)]),
        ];
        for (text, want) in rows {
            let hosts = text.parse::<Hosts>().unwrap();
            let got: Vec<_> = hosts.0.iter().map(|host| (host.name.as_str(), host.ranks)).collect();
            assert_eq!(got, want, "{text}");
        }
        for text in ["", "a:", "a:0", "a:x", ",b", "a:2,a:1", "a b:2", "-o:1", "a;rm:1", "[::1]2", "a:5000"] {
            assert!(text.parse::<Hosts>().is_err(), "{text:?}");
        }
    }
}
