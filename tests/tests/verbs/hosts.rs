//! Two hosts' worth of ports on this machine: each a virtual interface with soft-RoCE, joined to the other host's port of the
//! same number through a switch that belongs to the test.
//!
//! soft-RoCE of this kernel works in the machine's own network only, so both ends of a cable are this machine's addresses.
//! Routes are looked up by interface, and packets come in from addresses of the same machine: the kernel is told to let them.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use paceline_tests::process::{Plan, Process};
use paceline_tests::process_links;

use crate::{is_guest, launch, path_of};

/// Of every interface; carries RoCE packets of 4096 bytes.
const MTU: u32 = 4200;

/// Whether these tests can run here; if not, says that what needs two hosts is skipped.
pub fn are_possible() -> bool {
    if !is_guest() {
        return false;
    }
    let has_rdma = process_links().contains(&"rdma");
    if !has_rdma {
        eprintln!("skipped: only rdma has ports of its own");
    }
    has_rdma
}

/// Two hosts with some ports. Interfaces and devices go when it is dropped.
pub struct Hosts {
    /// Which of the pairs of hosts of this process.
    number: usize,
    n_ports: usize,
}

/// What can be done to a port, or to what is behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strike {
    /// The interface goes down.
    Down,
    /// The cable between the switch and the other host is pulled: this end's port stays up.
    Unplug,
    /// The same, and the kernel has forgotten the other end's hardware address.
    Forget,
    /// The switch takes short packets only.
    Shorten,
    /// The interface is taken out of the machine, and its device with it.
    Remove,
}

impl Hosts {
    /// Makes them.
    pub fn make(n_ports: usize) -> Hosts {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let hosts = Hosts { number: NEXT.fetch_add(1, Ordering::Relaxed), n_ports };
        (0..n_ports).for_each(|port| hosts.lay_cable(port));
        hosts
    }

    fn lay_cable(&self, port: usize) {
        let switch = self.switch(port);
        let mut commands = format!("link add {switch} type bridge\nlink set {switch} mtu {MTU} up\n");
        for host in 0..2 {
            let (own, plug) = (self.port(host, port), self.plug(host, port));
            let mac = self.mac(host, port);
            commands += &format!(
                "link add {own} mtu {MTU} address {mac} type veth peer name {plug} mtu {MTU}\n\
                 link set {plug} master {switch} up\nlink set {own} up\naddress add {}/24 dev {own}\n\
                 neighbour add {} lladdr {} dev {own} nud permanent\n",
                self.address(host, port),
                self.address(1 - host, port),
                self.mac(1 - host, port),
            );
        }
        ip(&commands);
        for host in 0..2 {
            let own = self.port(host, port);
            let accept = format!("/proc/sys/net/ipv4/conf/{own}/accept_local");
            std::fs::write(&accept, "1").unwrap_or_else(|error| panic!("{accept}: {error}"));
            run("rdma", &["link", "add", &own, "type", "rxe", "netdev", &own]);
        }
    }

    /// The name of a port's interface and of its device.
    pub fn port(&self, host: usize, port: usize) -> String {
        format!("h{host}n{}p{port}", self.number)
    }

    fn plug(&self, host: usize, port: usize) -> String {
        format!("s{host}n{}p{port}", self.number)
    }

    fn switch(&self, port: usize) -> String {
        format!("sw{}p{port}", self.number)
    }

    /// A port's address.
    pub fn address(&self, host: usize, port: usize) -> String {
        format!("10.{}.{port}.{}", 100 + self.number, host + 1)
    }

    fn mac(&self, host: usize, port: usize) -> String {
        format!("02:00:00:{:02x}:{port:02x}:{host:02x}", self.number)
    }

    /// Does something to a port, or to what is behind it.
    pub fn strike(&self, host: usize, port: usize, strike: Strike) {
        let (own, plug) = (self.port(host, port), self.plug(host, port));
        let forget = || format!("neighbour del {} dev {own}\n", self.address(1 - host, port));
        ip(&match strike {
            Strike::Down => format!("link set {own} down"),
            Strike::Unplug => format!("link set {plug} nomaster"),
            Strike::Forget => format!("link set {plug} nomaster\n{}", forget()),
            Strike::Shorten => format!("link set {plug} mtu 1500"),
            Strike::Remove => format!("link delete {own}"),
        });
    }

    /// Puts right what [`Strike::Unplug`] or [`Strike::Shorten`] has done at host 0.
    pub fn mend(&self, port: usize) {
        ip(&format!("link set {0} master {1} mtu {MTU}", self.plug(0, port), self.switch(port)));
    }

    /// Brings up a port that is down. The kernel has forgotten where the other end is.
    pub fn bring_up(&self, host: usize, port: usize) {
        let own = self.port(host, port);
        let (address, mac) = (self.address(1 - host, port), self.mac(1 - host, port));
        ip(&format!("link set {own} up\nneighbour replace {address} lladdr {mac} dev {own} nud permanent"));
    }

    /// Bytes that a port has sent so far.
    pub fn sent_bytes(&self, host: usize, port: usize) -> u64 {
        let file = format!("/sys/class/net/{}/statistics/tx_bytes", self.port(host, port));
        std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}")).trim().parse().unwrap()
    }

    /// Two ranks, one on each host, that do `steps`.
    pub fn plan(&self, steps: &str) -> Plan {
        let number = self.number;
        let devices = move |rank| vec!["env".to_owned(), format!("PACELINE_RDMA_DEVICES=h{rank}n{number}p")];
        Plan::new(2, steps).variable("PACELINE_LINKS", "rdma").behind(devices)
    }

    /// A tool's ranks, one on each host.
    pub fn launch(&self, tool: &str, arguments: &[&str]) -> Process {
        let devices = format!("PACELINE_RDMA_DEVICES=h${{PACELINE_RANK}}n{}p exec \"$0\" \"$@\"", self.number);
        launch(&[], "rdma", 2, &[&["sh", "-c", &devices, &path_of(tool)], arguments].concat())
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for port in 0..self.n_ports {
            let names = [self.plug(0, port), self.plug(1, port), self.switch(port)];
            // Some may be gone; a cable's ends go together, and devices with their interfaces.
            let gone =
                names.map(|name| Command::new("ip").args(["link", "delete", &name]).stderr(Stdio::null()).status());
            drop(gone);
        }
    }
}

/// Runs commands of `ip`, one on each line.
fn ip(commands: &str) {
    let child = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("the guest has ip");
    child.stdin.take().expect("it is piped").write_all(commands.as_bytes()).expect("ip reads all");
    let output = child.wait_with_output().expect("it is a child");
    assert!(output.status.success(), "ip: {}\n{commands}", String::from_utf8_lossy(&output.stderr));
}

fn run(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}
