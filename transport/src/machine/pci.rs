//! The PCI tree, from sysfs: the devices that matter, and the switches that they are behind.
//!
//! sysfs shows a switch as a bridge towards the processor with a bridge for each device behind it, and the processor's own port
//! is a bridge, too. So in the path of a device the second bridge, the fourth and so on are switches; the others are ports of
//! what is above them. A switch counts once, by its port towards the processor.

use std::path::{Path, PathBuf};

use super::links::PciLink;
use super::parts::is_emulated;
use super::source::{Source, hexadecimal, names, number, text};
use super::{Attributes, Machine, PciAddress, PciDevice};

/// The most devices that are kept, switches among them.
const DEVICES_MAX: usize = 4096;

/// Adds devices to a machine.
pub(super) struct Tree {
    /// `devices` of sysfs, with links resolved.
    root: Option<PathBuf>,
}

impl Tree {
    /// Reads the devices on the PCI bus.
    pub(super) fn read(source: &Source, machine: &mut Machine) -> Tree {
        let tree = Tree { root: source.sys("devices").canonicalize().ok() };
        let bus = source.sys("bus/pci/devices");
        let on_bus = names(&bus);
        if on_bus.is_empty() {
            machine.note("no PCI devices are seen: hidden by a container or a virtual machine".to_owned());
        }
        let mut lost = 0;
        for name in on_bus {
            let link = bus.join(&name);
            let (Some(class), vendor) = (hexadecimal(&link.join("class")), hexadecimal(&link.join("vendor"))) else {
                lost += 1;
                continue;
            };
            if is_kept(class, vendor) && tree.add(&link, machine).is_none() {
                lost += 1;
            }
        }
        if lost > 0 {
            machine.note(format!("{lost} PCI devices don't say what or where they are, and aren't shown"));
        }
        tell_homeless(machine);
        tree
    }

    /// The device that a link in sysfs leads to, or is a part of; added if it isn't there yet.
    pub(super) fn add(&self, link: &Path, machine: &mut Machine) -> Option<usize> {
        let path = link.canonicalize().ok()?;
        let root = self.root.as_ref()?;
        let mut folder = root.clone();
        let mut hops: Vec<(PciAddress, PathBuf)> = Vec::new();
        for part in path.strip_prefix(root).ok()?.components() {
            folder.push(part);
            if let Some(address) = part.as_os_str().to_str().and_then(|part| part.parse().ok()) {
                hops.push((address, folder.clone()));
            }
        }
        let mut parent = None;
        // Where a bridge doesn't say its node, it is that of the bridge above.
        let mut node = (machine.nodes.len() == 1).then_some(0);
        for at in 0..hops.len() {
            let (address, folder) = &hops[at];
            let own = number::<i32>(&folder.join("numa_node")).filter(|id| *id >= 0);
            node = own.and_then(|id| machine.nodes.iter().position(|node| node.id == id)).or(node);
            let is_last = at + 1 == hops.len();
            if !is_last && at % 2 == 0 {
                continue;
            }
            parent = match machine.device_at(*address) {
                Some(known) => Some(known),
                None if machine.devices.len() < DEVICES_MAX => {
                    let above = at.checked_sub(1).map(|above| hops[above].1.as_path());
                    machine.devices.push(describe(*address, folder, above, parent, node));
                    Some(machine.devices.len() - 1)
                }
                None => return None,
            };
        }
        parent
    }
}

fn describe(
    address: PciAddress,
    folder: &Path,
    above: Option<&Path>,
    parent: Option<usize>,
    node: Option<usize>,
) -> PciDevice {
    let short = |name: &str| hexadecimal(&folder.join(name)).and_then(|number| u16::try_from(number).ok());
    let mut attributes = Attributes::new();
    for name in ["subsystem_vendor", "subsystem_device"] {
        attributes.extend(short(name).map(|number| (name.to_owned(), format!("{number:#06x}"))));
    }
    let own = link(folder);
    // The port above is in a device that is no PCI Express device, or in the processor: then only one end tells.
    let port = above.filter(|above| {
        let short = |name: &str| hexadecimal(&above.join(name)).and_then(|number| u16::try_from(number).ok());
        !is_emulated(short("vendor"), short("device"))
    });
    let link = match (own, port.and_then(link)) {
        (Some(own), Some(port)) => Some(own.narrower(port)),
        (own, port) => own.or(port),
    };
    let class = hexadecimal(&folder.join("class"));
    PciDevice { address, class, vendor: short("vendor"), device: short("device"), link, parent, node, attributes }
}

/// What a device's own end of its link can do.
fn link(folder: &Path) -> Option<PciLink> {
    PciLink::parse(&text(&folder.join("max_link_speed"))?, &text(&folder.join("max_link_width"))?)
}

/// Whether data comes from such a device or goes to it in quantity.
fn is_kept(class: u32, vendor: Option<u32>) -> bool {
    match class >> 16 {
        // Storage (SCSI to NVMe), networks, displays, accelerators.
        0x01 | 0x02 | 0x03 | 0x12 => true,
        // NVIDIA's NVLink switches are bridges to the PCI bus.
        0x06 => class >> 8 == 0x0680 && vendor == Some(0x10de),
        _ => false,
    }
}

/// Notes which devices say nothing of their NUMA node.
fn tell_homeless(machine: &mut Machine) {
    let homeless: Vec<String> = machine
        .devices
        .iter()
        .filter(|device| device.node.is_none())
        .map(|device| device.address.to_string())
        .collect();
    if let Some(first) = homeless.first() {
        let count = homeless.len();
        machine
            .note(format!("{count} PCI devices ({first} first) don't say which NUMA node is near: they count as far"));
    }
}
