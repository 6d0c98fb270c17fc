//! Ports of network devices: RDMA devices with their interfaces, and interfaces without one.

use std::path::Path;

use super::pci::Tree;
use super::source::{Source, names, number, numbered, text};
use super::{Attributes, Machine, Nic, NicKind};

/// Kinds of interfaces (`ARPHRD_*`).
const ETHERNET: u32 = 1;
const INFINIBAND: u32 = 32;

/// The most ports that are shown.
const NICS_MAX: usize = 1024;

/// Adds the network ports to a machine that has its PCI devices.
pub(super) fn read(source: &Source, tree: &Tree, machine: &mut Machine) {
    let rdma = source.sys("class/infiniband");
    for name in names(&rdma) {
        let folder = rdma.join(&name);
        let device = tree.add(&folder.join("device"), machine);
        for port in numbered(&folder.join("ports"), "") {
            machine.nics.push(rdma_port(&name, port, &folder, device));
        }
    }
    let net = source.sys("class/net");
    let mut apart = Vec::new();
    for name in names(&net) {
        let folder = net.join(&name);
        let is_real = folder.join("device").exists();
        let device = if is_real { tree.add(&folder.join("device"), machine) } else { None };
        let Some(nic) = interface(&name, &folder, device) else { continue };
        match port_of(machine, &nic) {
            Some(port) => machine.nics[port].interface = Some(name),
            None if is_real => machine.nics.push(nic),
            None => apart.push(nic),
        }
    }
    // A container's interfaces have no device: the other end of a pair that its host made.
    if machine.nics.is_empty() && !apart.is_empty() {
        apart.retain(|nic| nic.state.as_deref() == Some("up"));
        if !apart.is_empty() {
            let labels: Vec<String> = apart.iter().map(Nic::label).collect();
            machine.note(format!("no interface has a device (a container?): {} may lead anywhere", labels.join(", ")));
            machine.nics = apart;
        }
    }
    machine.nics.truncate(NICS_MAX);
    for (number, nic) in (0..).zip(&mut machine.nics) {
        nic.number = number;
        nic.node = match nic.device {
            Some(device) => machine.devices[device].node,
            None => (machine.nodes.len() == 1).then_some(0),
        };
    }
}

fn rdma_port(name: &str, port: u32, folder: &Path, device: Option<usize>) -> Nic {
    let about = folder.join(format!("ports/{port}"));
    let kind = match text(&about.join("link_layer")).as_deref() {
        Some("InfiniBand") => NicKind::InfiniBand,
        Some("Ethernet") => NicKind::Roce,
        _ => NicKind::Unknown,
    };
    // `200 Gb/sec (4X HDR)`.
    let rate = text(&about.join("rate")).and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    let rate = rate.filter(|gigabits| *gigabits > 0.0).map(|gigabits| (gigabits * 1e9 / 8.0) as u64);
    // `4: ACTIVE`.
    let state = text(&about.join("state")).map(|text| text.rsplit(' ').next().unwrap_or_default().to_owned());
    let interface = text(&about.join("gid_attrs/ndevs/0"));
    let mut attributes = Attributes::new();
    attributes.extend(
        text(&folder.join("node_guid")).and_then(|guid| guid_text(&guid)).map(|guid| ("guid".to_owned(), guid)),
    );
    Nic {
        name: Some(name.to_owned()),
        device,
        node: None,
        number: 0,
        port,
        kind,
        bytes_per_second: rate,
        state,
        interface,
        attributes,
    }
}

/// NCCL's form of `0c42:a103:0016:ef3c`.
fn guid_text(guid: &str) -> Option<String> {
    let number = u64::from_str_radix(&guid.replace(':', ""), 16).ok()?;
    Some(format!("{number:#x}"))
}

/// An interface that could carry data to other hosts.
fn interface(name: &str, folder: &Path, device: Option<usize>) -> Option<Nic> {
    let kind = match number::<u32>(&folder.join("type"))? {
        ETHERNET => NicKind::Ethernet,
        INFINIBAND => NicKind::InfiniBand,
        _ => return None,
    };
    // In megabits per second; -1, or no answer, where nobody knows.
    let megabits = number::<i64>(&folder.join("speed")).and_then(|speed| u64::try_from(speed).ok());
    let megabits = megabits.filter(|megabits| (1..=u64::from(u32::MAX - 1)).contains(megabits));
    Some(Nic {
        name: Some(name.to_owned()),
        device,
        node: None,
        number: 0,
        port: number::<u32>(&folder.join("dev_port")).and_then(|port| port.checked_add(1)).unwrap_or(1),
        kind,
        bytes_per_second: megabits.map(|megabits| megabits * 125_000),
        state: text(&folder.join("operstate")),
        interface: None,
        attributes: Attributes::new(),
    })
}

/// The port of an RDMA device that an interface belongs to.
fn port_of(machine: &Machine, interface: &Nic) -> Option<usize> {
    let ports = || machine.nics.iter().enumerate().filter(|(_, nic)| nic.kind != NicKind::Ethernet);
    let named = ports().find(|(_, nic)| nic.interface.is_some() && nic.interface == interface.name);
    let device = interface.device;
    let beside = || {
        let free = |nic: &Nic| nic.device.is_some() && nic.device == device && nic.interface.is_none();
        ports().find(|(_, nic)| free(nic) && nic.port == interface.port)
    };
    named.or_else(beside).map(|(at, _)| at)
}
