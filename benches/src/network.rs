//! Two hosts on one machine: network namespaces joined by a virtual cable, removed when dropped.

use std::io::Write;
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The interface of each host.
pub const INTERFACE: &str = "veth0";

/// What a limited cable lets through at once after a rest. Less than the 64 KiB that the kernel hands over in one piece would
/// make it cut them up.
const BURST: &str = "128kb";
/// How long what waits at a limited cable may wait before it is dropped.
const LATENCY: &str = "50ms";

/// The namespaces, and a script that starts what a launcher wants started on a host, in place of ssh.
pub struct Network {
    names: Vec<String>,
    agent: PathBuf,
}

impl Network {
    /// Makes the network, with its script in `folder`.
    ///
    /// # Errors
    ///
    /// The reason why it can't be made.
    pub fn make(folder: &Path) -> Result<Network, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root can make network namespaces".into());
        }
        for tool in ["ip", "unshare"] {
            if Command::new(tool).arg("--version").output().is_err() && Command::new(tool).arg("-V").output().is_err() {
                return Err(format!("{tool} is not here"));
            }
        }
        let mut network = Network { names: Vec::new(), agent: folder.join("agent") };
        for end in ["a", "b"] {
            let name = format!("side-by-side-{}-{end}", std::process::id());
            ip(&["netns", "add", &name])?;
            network.names.push(name);
        }
        let [a, b] = &network.names[..] else { unreachable!("two were made") };
        ip(&["link", "add", INTERFACE, "netns", a, "type", "veth", "peer", "name", INTERFACE, "netns", b])?;
        for (host, name) in network.names.iter().enumerate() {
            // Without IPv6, whose announcements would be counted as traffic.
            ip(&["-n", name, "link", "set", INTERFACE, "addrgenmode", "none"])?;
            ip(&["-n", name, "addr", "add", &format!("{}/24", address(host)), "dev", INTERFACE])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            ip(&["-n", name, "link", "set", INTERFACE, "up"])?;
        }
        network.write_agent().map_err(|error| format!("{}: {error}", network.agent.display()))?;
        Ok(network)
    }

    /// Limits the cable to `rate` each way, in words of `tc` such as `1gbit`.
    ///
    /// # Errors
    ///
    /// What `tc` says.
    pub fn limit(&self, rate: &str) -> Result<(), String> {
        self.names.iter().try_for_each(|name| {
            let words = ["-n", name, "qdisc", "add", "dev", INTERFACE, "root", "tbf", "rate", rate];
            run("tc", &[&words[..], &["burst", BURST, "latency", LATENCY]].concat())
        })
    }

    /// A command that will run on a host, which has a name of its own.
    #[must_use]
    pub fn on(&self, host: usize, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[host], "unshare", "--uts", "sh", "-c"]);
        command.args(["hostname \"$0\" && exec \"$@\"", host_name(host)]).arg(program);
        command
    }

    /// What launchers may call in place of ssh: options, an address, and words for a shell.
    #[must_use]
    pub fn agent(&self) -> &Path {
        &self.agent
    }

    /// Bytes that have crossed the cable so far, both ways.
    ///
    /// # Errors
    ///
    /// If they can't be read.
    pub fn crossed_bytes(&self) -> Result<u64, String> {
        let file = |way: &str| format!("/sys/class/net/{INTERFACE}/statistics/{way}_bytes");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[0], "cat", &file("tx"), &file("rx")]);
        let output = command.output().map_err(|error| format!("reading {}: {error}", file("tx")))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let ways: Vec<u64> = text.split_whitespace().filter_map(|way| way.parse().ok()).collect();
        if let [sent, received] = ways[..] { Ok(sent + received) } else { Err(format!("{} can't be read", file("tx"))) }
    }

    fn write_agent(&self) -> std::io::Result<()> {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o700).open(&self.agent)?;
        writeln!(file, "#!/bin/sh\nwhile [ $# -gt 0 ]; do\n    word=$1\n    shift\n    case $word in")?;
        for (host, name) in self.names.iter().enumerate() {
            let start = "exec sh -c \"$*\"";
            writeln!(file, "    {}) exec ip netns exec {name} unshare --uts sh -c \\", address(host))?;
            writeln!(file, "        'hostname \"$0\" && {start}' {} \"$@\" ;;", host_name(host))?;
        }
        writeln!(file, "    esac\ndone\necho \"no such host\" >&2\nexit 1")
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            if let Err(error) = ip(&["netns", "del", name]) {
                eprintln!("the network stays: {error}");
            }
        }
    }
}

/// A host's address.
#[must_use]
pub fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, 0, host as u8 + 1)
}

fn host_name(host: usize) -> &'static str {
    ["side-a", "side-b"][host]
}

/// How many of the ranks are on host 0; the others are on host 1.
#[must_use]
pub fn ranks_per_host(ranks: usize) -> usize {
    ranks.div_ceil(2)
}

fn ip(words: &[&str]) -> Result<(), String> {
    run("ip", words)
}

fn run(program: &str, words: &[&str]) -> Result<(), String> {
    let told = |why: &str| format!("{program} {}: {}", words.join(" "), why.trim());
    let output = Command::new(program).args(words).output().map_err(|error| told(&error.to_string()))?;
    if output.status.success() { Ok(()) } else { Err(told(&String::from_utf8_lossy(&output.stderr))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_reach_each_other_and_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let network = match Network::make(folder.path()) {
            Ok(network) => network,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        let name = network.on(1, "hostname").output().expect("a host runs commands");
        assert_eq!(String::from_utf8_lossy(&name.stdout), "side-b\n");
        let mut agent = Command::new(network.agent());
        agent.args(["-x", "10.78.0.2", "ip", "-o", "addr", "show", "dev", INTERFACE, "&&", "hostname"]);
        let said = agent.output().expect("the script runs");
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(text.contains("10.78.0.2/24") && text.ends_with("side-b\n"), "{said:?}");
        let before = network.crossed_bytes().expect("counters");
        // Nobody listens there, but the attempt and the refusal cross the cable.
        let attempt = network.on(0, "bash").args(["-c", "exec 3<>/dev/tcp/10.78.0.2/9"]).output().expect("bash");
        assert!(String::from_utf8_lossy(&attempt.stderr).contains("refused"), "{attempt:?}");
        assert!(before < network.crossed_bytes().expect("counters"));
        let names = network.names.clone();
        drop(network);
        let left = Command::new("ip").args(["netns", "list"]).output().expect("ip is here");
        assert!(names.iter().all(|name| !String::from_utf8_lossy(&left.stdout).contains(name)), "{left:?}");
    }
}
