//! From a text to a machine.

use roxmltree::{Document, Node, ParsingOptions};

use super::attributes::Element;
use super::{BYTES_MAX, XmlError};
use crate::machine::links::PciLink;
use crate::machine::{
    Attributes, CORES_MAX, Core, Gpu, Machine, Nic, NicKind, NumaNode, NvLink, Package, PciAddress, PciDevice,
    Processor, gpus, lists,
};

/// The most elements, texts and comments.
const NODES_MAX: u32 = 1 << 16;
/// How deep switches may be behind each other; a PCI path has no more than 16 hops on any host that is known.
const DEPTH_MAX: usize = 32;
/// The most of each kind.
const CPUS_MAX: usize = 1024;
const DEVICES_MAX: usize = 4096;
const GPUS_MAX: usize = 1024;
const NICS_MAX: usize = 1024;

impl Machine {
    /// Reads a machine in NCCL's format, of this or another machine.
    ///
    /// # Errors
    ///
    /// The text is too long, isn't XML, or isn't in this format; the error says in which line, and what was expected.
    pub fn from_xml(text: &str) -> Result<Machine, XmlError> {
        if text.len() > BYTES_MAX {
            return Err(XmlError::TooLong(text.len() as u64));
        }
        let options = ParsingOptions { nodes_limit: NODES_MAX, ..ParsingOptions::default() };
        let document = Document::parse_with_options(text, options).map_err(|error| {
            let position = error.pos();
            XmlError::Syntax { line: position.row, column: position.col, why: error.to_string() }
        })?;
        let mut reader = Reader { document: &document, machine: Machine::default() };
        reader.system(document.root_element())?;
        Ok(reader.finish())
    }

    /// Reads a file in NCCL's format.
    ///
    /// # Errors
    ///
    /// As [`Machine::from_xml`], or if the file can't be read.
    pub fn from_xml_file(path: &std::path::Path) -> Result<Machine, XmlError> {
        use std::io::Read;
        let unreadable = |error: std::io::Error| XmlError::Unreadable(error.to_string());
        let file = std::fs::File::open(path).map_err(unreadable)?;
        let mut text = String::new();
        file.take(BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(unreadable)?;
        Machine::from_xml(&text)
    }
}

struct Reader<'a, 'input> {
    document: &'a Document<'input>,
    machine: Machine,
}

/// Where an element stands.
#[derive(Clone, Copy)]
struct Place {
    node: usize,
    device: Option<usize>,
    depth: usize,
}

impl<'a, 'input> Reader<'a, 'input> {
    fn system(&mut self, root: Node<'a, 'input>) -> Result<(), XmlError> {
        let mut system = Element::new(self.document, root)?;
        if root.tag_name().name() != "system" {
            let what = format!("the outermost element is <{}>", root.tag_name().name());
            return Err(system.wrong("", what, "<system version=\"1\">"));
        }
        if let Some(version) = system.take("version").filter(|version| version != "1") {
            self.machine.note(format!("the file is of version {version:?}, where 1 is known"));
        }
        for (name, child) in system.children() {
            match name {
                "cpu" => self.cpu(child)?,
                "pci" | "gpu" | "nic" | "net" => {
                    let element = Element::new(self.document, child)?;
                    return Err(element.wrong("", format!("<{name}> stands in <system>"), "it in a <cpu>"));
                }
                _ => self.ignore(&system, name, child),
            }
        }
        Ok(())
    }

    fn cpu(&mut self, element: Node<'a, 'input>) -> Result<(), XmlError> {
        let mut cpu = Element::new(self.document, element)?;
        let Some(id) = cpu.number::<i32>("numaid")? else {
            return Err(cpu.wrong("", "<cpu> has no numaid".to_owned(), "the number of its NUMA node"));
        };
        let mask = "a mask of hexadecimal digits such as 0000ffff,ffffffff";
        if self.machine.nodes.len() == CPUS_MAX {
            return Err(cpu.wrong("", format!("there are more than {CPUS_MAX} <cpu>"), "fewer"));
        }
        let cores =
            cpu.parse("affinity", mask, |text| if text.is_empty() { Some(Vec::new()) } else { lists::mask(text) })?;
        let processor = Processor {
            arch: cpu.take("arch"),
            vendor: cpu.take("vendor"),
            family: cpu.number("familyid")?,
            model: cpu.number("modelid")?,
        };
        let package = cpu.number("package")?;
        let attributes = std::mem::take(&mut cpu.left);
        let cores = cores.unwrap_or_default();
        self.machine.nodes.push(NumaNode { id, package, cores, memory_bytes: None, processor, attributes });
        let place = Place { node: self.machine.nodes.len() - 1, device: None, depth: 0 };
        self.within(&cpu, place)
    }

    fn within(&mut self, element: &Element<'a, 'input>, place: Place) -> Result<(), XmlError> {
        for (name, child) in element.children() {
            match (name, place.device) {
                ("gpu", Some(device)) => self.gpu(child, device)?,
                ("pci" | "nic", _) => {}
                _ => self.ignore(element, name, child),
            }
        }
        // In the order in which they are written.
        element.children().filter(|(name, _)| *name == "nic").try_for_each(|(_, child)| self.nic(child, place))?;
        element.children().filter(|(name, _)| *name == "pci").try_for_each(|(_, child)| self.pci(child, place))
    }

    fn pci(&mut self, element: Node<'a, 'input>, place: Place) -> Result<(), XmlError> {
        let mut pci = Element::new(self.document, element)?;
        if place.depth == DEPTH_MAX {
            let what = format!("{DEPTH_MAX} PCI devices stand in each other");
            return Err(pci.wrong("", what, "fewer"));
        }
        if self.machine.devices.len() == DEVICES_MAX {
            return Err(pci.wrong("", format!("there are more than {DEVICES_MAX} <pci>"), "fewer"));
        }
        let address =
            pci.parse("busid", "a PCI address such as 0000:07:00.0", |text| text.parse::<PciAddress>().ok())?;
        let Some(address) = address else {
            return Err(pci.wrong("", "<pci> has no busid".to_owned(), "a PCI address such as busid=\"0000:07:00.0\""));
        };
        if let Some(known) = self.machine.device_at(address).filter(|known| self.shares_host(*known, place.node)) {
            let what = format!("{} is there twice", self.machine.devices[known].address);
            return Err(pci.wrong("busid", what, "every device once"));
        }
        let class = pci.hexadecimal("class", "0x030200")?;
        let vendor = short(&mut pci, "vendor")?;
        let device = short(&mut pci, "device")?;
        let link = self.link(&mut pci, address)?;
        let node = Some(place.node);
        let attributes = std::mem::take(&mut pci.left);
        let parent = place.device;
        self.machine.devices.push(PciDevice { address, class, vendor, device, link, parent, node, attributes });
        let at = self.machine.devices.len() - 1;
        let (gpus, nics) = (self.machine.gpus.len(), self.machine.nics.len());
        self.within(&pci, Place { device: Some(at), depth: place.depth + 1, ..place })?;
        // Vendors' files often tell no more than the class.
        let described = &self.machine.devices[at];
        let is_leaf = gpus == self.machine.gpus.len() && nics == self.machine.nics.len();
        if is_leaf && gpus::is_gpu(described) {
            self.machine.gpus.push(bare_gpu(at, gpus));
        } else if is_leaf && class.is_some_and(|class| class >> 16 == 0x02) {
            self.machine.nics.push(Nic { kind: kind_by_class(class), ..bare_nic(Some(at), place.node, nics) });
        }
        Ok(())
    }

    /// Whether a device is of the host whose node is given: files of several hosts may have the same addresses.
    fn shares_host(&self, device: usize, node: usize) -> bool {
        let host = |node: usize| self.machine.nodes[node].attributes.get("host_hash");
        self.machine.devices[device].node.is_none_or(|of| host(of) == host(node))
    }

    /// Texts that tell no link are kept as they are.
    fn link(&mut self, pci: &mut Element<'a, 'input>, address: PciAddress) -> Result<Option<PciLink>, XmlError> {
        let told = |name: &str| pci.left.get(name).cloned();
        let (Some(speed), Some(width)) = (told("link_speed"), told("link_width")) else { return Ok(None) };
        let is_number = width.is_empty() || width.trim().parse::<u32>().is_ok();
        if !is_number {
            return Err(pci.wrong("link_width", format!("link_width={width:?} of <pci>"), "how many lanes, 1 to 32"));
        }
        let link = PciLink::parse(&speed, &width);
        match link {
            Some(_) => {
                pci.take("link_speed");
                pci.take("link_width");
            }
            None if [&speed, &width].iter().any(|text| !matches!(text.as_str(), "" | "0")) => {
                self.machine.note(format!("{address}: a link of {speed:?} and {width:?} isn't known"));
            }
            None => {}
        }
        Ok(link)
    }

    fn gpu(&mut self, element: Node<'a, 'input>, device: usize) -> Result<(), XmlError> {
        let mut gpu = Element::new(self.document, element)?;
        if self.machine.gpus.len() == GPUS_MAX {
            return Err(gpu.wrong("", format!("there are more than {GPUS_MAX} <gpu>"), "fewer"));
        }
        let mut found = bare_gpu(device, self.machine.gpus.len());
        found.number = gpu.number("dev")?.unwrap_or(found.number);
        found.sm = gpu.number("sm")?;
        found.name = gpu.take("name");
        for (name, child) in gpu.children() {
            if name != "nvlink" {
                self.ignore(&gpu, name, child);
                continue;
            }
            let mut link = Element::new(self.document, child)?;
            let Some(target) = link.take("target") else {
                return Err(link.wrong("", "<nvlink> has no target".to_owned(), "the address of what it leads to"));
            };
            let count = link.number("count")?.unwrap_or(1);
            // NCCL takes what it can't find on the bus for a switch.
            let class = link.hexadecimal("tclass", "0x068000")?.unwrap_or(0x06_8000);
            found.links.push(NvLink { target, class, count });
        }
        found.attributes = std::mem::take(&mut gpu.left);
        self.machine.gpus.push(found);
        Ok(())
    }

    fn nic(&mut self, element: Node<'a, 'input>, place: Place) -> Result<(), XmlError> {
        let nic = Element::new(self.document, element)?;
        if !nic.left.is_empty() {
            let names: Vec<&str> = nic.left.keys().map(String::as_str).collect();
            self.machine.note(format!("what a <nic> says of {} isn't known, and is left out", names.join(", ")));
        }
        for (name, child) in nic.children() {
            if name != "net" {
                self.ignore(&nic, name, child);
                continue;
            }
            let mut net = Element::new(self.document, child)?;
            let mut found = bare_nic(place.device, place.node, self.machine.nics.len());
            if found.number as usize == NICS_MAX {
                return Err(net.wrong("", format!("there are more than {NICS_MAX} network ports"), "fewer"));
            }
            found.name = net.take("name");
            if found.name.is_none() {
                return Err(net.wrong("", "<net> has no name".to_owned(), "the device's, such as mlx5_0"));
            }
            found.number = net.number("dev")?.unwrap_or(found.number);
            found.port = net.number("port")?.unwrap_or(found.port);
            let megabits = net.number::<u32>("speed")?;
            found.bytes_per_second = megabits.filter(|speed| *speed > 0).map(|speed| u64::from(speed) * 125_000);
            found.state = net.take("state");
            found.interface = net.take("interface");
            let class = place.device.and_then(|at| self.machine.devices[at].class);
            found.kind = match net.left.get("kind").and_then(|kind| kind_of(kind)) {
                Some(kind) => {
                    net.take("kind");
                    kind
                }
                None => kind_by_class(class),
            };
            found.attributes = std::mem::take(&mut net.left);
            self.machine.nics.push(found);
        }
        Ok(())
    }

    fn ignore(&mut self, parent: &Element<'a, 'input>, name: &str, child: Node<'a, 'input>) {
        let line = parent.line(child);
        self.machine.note(format!("line {line}: <{name}> isn't known, and is left out"));
    }

    fn finish(self) -> Machine {
        let mut machine = self.machine;
        let mut home = vec![None; CORES_MAX as usize];
        for (at, node) in machine.nodes.iter().enumerate().rev() {
            node.cores.iter().for_each(|core| home[*core as usize] = Some(at));
        }
        for (id, node) in (0..).zip(home) {
            if let Some(node) = node {
                let package = machine.nodes[node].package;
                machine.cores.push(Core { id, package, node: Some(node), threads: vec![id] });
            }
        }
        let mut packages: Vec<Package> = Vec::new();
        for (at, node) in machine.nodes.iter().enumerate() {
            let Some(id) = node.package else { continue };
            match packages.iter_mut().find(|package| package.id == id) {
                Some(package) => package.nodes.push(at),
                None => packages.push(Package { id, nodes: vec![at] }),
            }
        }
        machine.packages = packages;
        let hosts: std::collections::BTreeSet<_> =
            machine.nodes.iter().map(|node| node.attributes.get("host_hash").cloned()).collect();
        if hosts.len() > 1 {
            machine.note(format!("the file is of {} hosts: what is between them counts as a network", hosts.len()));
        }
        machine
    }
}

fn short(element: &mut Element<'_, '_>, name: &str) -> Result<Option<u16>, XmlError> {
    let Some(number) = element.hexadecimal(name, "0x10de")? else { return Ok(None) };
    let too_large = || element.wrong(name, format!("{name}={number:#x} of <pci>"), "sixteen bits");
    u16::try_from(number).map(Some).map_err(|_| too_large())
}

fn bare_gpu(device: usize, number: usize) -> Gpu {
    Gpu { device, number: number as u32, name: None, sm: None, links: Vec::new(), attributes: Attributes::new() }
}

fn bare_nic(device: Option<usize>, node: usize, number: usize) -> Nic {
    Nic {
        name: None,
        device,
        node: Some(node),
        number: number as u32,
        port: 1,
        kind: NicKind::Unknown,
        bytes_per_second: None,
        state: None,
        interface: None,
        attributes: Attributes::new(),
    }
}

fn kind_by_class(class: Option<u32>) -> NicKind {
    match class.map(|class| class >> 8) {
        Some(0x0207) => NicKind::InfiniBand,
        _ => NicKind::Unknown,
    }
}

/// The kinds by their names in files.
pub(super) const KINDS: [(NicKind, &str); 3] =
    [(NicKind::Ethernet, "ethernet"), (NicKind::InfiniBand, "infiniband"), (NicKind::Roce, "roce")];

fn kind_of(text: &str) -> Option<NicKind> {
    KINDS.iter().find(|(_, name)| *name == text).map(|(kind, _)| *kind)
}
