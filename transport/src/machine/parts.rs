//! The parts of a machine, and how they hang together: lists of each kind, which refer to each other by their places.

use std::collections::BTreeMap;

use super::PciAddress;
use super::links::PciLink;

/// What a file in NCCL's format says of a part beyond what is understood here; kept, and written again.
pub type Attributes = BTreeMap<String, String>;

/// The parts of a machine.
///
/// Fields that name another part hold its place in the list of that kind; numbers of processors are the kernel's, and lists of
/// them are in order. What isn't known is `None`, or absent from its list; `notes` says why.
///
/// It is plain data: [`Machine::to_bytes`] and [`Machine::from_bytes`] send it to another rank, [`Machine::digest`] says
/// whether two ranks see the same, and [`Machine::path`] what joins two parts.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Machine {
    /// The sockets.
    pub packages: Vec<Package>,
    /// The NUMA nodes.
    pub nodes: Vec<NumaNode>,
    /// The logical processors, in the order of their numbers.
    pub cores: Vec<Core>,
    /// The caches of processors.
    pub caches: Vec<Cache>,
    /// PCI switches and devices; a device comes after the switch that it is behind.
    pub devices: Vec<PciDevice>,
    /// The GPUs.
    pub gpus: Vec<Gpu>,
    /// The ports of network devices.
    pub nics: Vec<Nic>,
    /// What this process may use of the processors; `None` where the machine is of another machine.
    pub allowance: Option<Allowance>,
    /// What couldn't be seen or read, and what that means.
    pub notes: Vec<String>,
}

/// A socket.
#[derive(Clone, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Package {
    /// The kernel's number.
    pub id: u32,
    /// Its NUMA nodes.
    pub nodes: Vec<usize>,
}

/// What kind of processor it is, in the words of NCCL's files.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Processor {
    /// Such as `x86_64`.
    pub arch: Option<String>,
    /// Such as `GenuineIntel`.
    pub vendor: Option<String>,
    /// The number that x86 processors give.
    pub family: Option<u32>,
    /// The number that x86 processors give.
    pub model: Option<u32>,
}

/// Memory and the processors that are near to it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct NumaNode {
    /// The kernel's number; -1 in files for a node that isn't known.
    pub id: i32,
    /// The number of its socket.
    pub package: Option<u32>,
    /// The numbers of its logical processors.
    pub cores: Vec<u32>,
    /// Its memory.
    pub memory_bytes: Option<u64>,
    /// Its processors' kind.
    pub processor: Processor,
    /// What else a file said.
    pub attributes: Attributes,
}

/// A logical processor.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Core {
    /// The kernel's number.
    pub id: u32,
    /// The number of its socket.
    pub package: Option<u32>,
    /// Its NUMA node.
    pub node: Option<usize>,
    /// The logical processors that share its core, itself among them.
    pub threads: Vec<u32>,
}

/// What a cache holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[allow(missing_docs)]
pub enum CacheKind {
    Data,
    Instruction,
    Unified,
}

/// A cache.
#[derive(Clone, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Cache {
    /// 1 is the nearest to the core.
    pub level: u32,
    /// What it holds.
    pub kind: CacheKind,
    /// Its size, where the kernel says it.
    pub bytes: Option<u64>,
    /// The numbers of the logical processors that share it.
    pub cores: Vec<u32>,
}

/// A PCI switch or device.
#[derive(Clone, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct PciDevice {
    /// Where it is; that of a switch is its port towards the processor.
    pub address: PciAddress,
    /// Base class, subclass and interface, a byte each.
    pub class: Option<u32>,
    /// The vendor's number.
    pub vendor: Option<u16>,
    /// The vendor's number for the device.
    pub device: Option<u16>,
    /// What both ends of its link towards the processor can do.
    pub link: Option<PciLink>,
    /// The switch that it is behind.
    pub parent: Option<usize>,
    /// The NUMA node that it is near to.
    pub node: Option<usize>,
    /// What else a file said.
    pub attributes: Attributes,
}

/// A GPU.
#[derive(Clone, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Gpu {
    /// Its PCI device.
    pub device: usize,
    /// Its number: the order of addresses, or what a file said.
    pub number: u32,
    /// What its maker calls it.
    pub name: Option<String>,
    /// NVIDIA's compute capability, such as 90.
    pub sm: Option<u32>,
    /// Its NVLinks, those to one target together.
    pub links: Vec<NvLink>,
    /// What else a file said.
    pub attributes: Attributes,
}

/// NVLinks from a GPU to one target.
#[derive(Clone, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct NvLink {
    /// Its address; drivers don't tell that of some switches.
    pub target: String,
    /// The target's PCI class.
    pub class: u32,
    /// How many links.
    pub count: u32,
}

/// What a network port speaks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[allow(missing_docs)]
pub enum NicKind {
    Ethernet,
    InfiniBand,
    /// RDMA over Ethernet.
    Roce,
    Unknown,
}

/// A port of a network device.
#[derive(Clone, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Nic {
    /// The RDMA device's name, else the interface's; `None` if a file told only the PCI device.
    pub name: Option<String>,
    /// Its PCI device.
    pub device: Option<usize>,
    /// The NUMA node that it is near to.
    pub node: Option<usize>,
    /// Its place among the machine's ports, or what a file said.
    pub number: u32,
    /// The device's number for the port, from 1.
    pub port: u32,
    /// What it speaks.
    pub kind: NicKind,
    /// In each direction, as the port's rate says.
    pub bytes_per_second: Option<u64>,
    /// `ACTIVE`, `DOWN` and so on for RDMA devices, `up`, `down` and so on for others.
    pub state: Option<String>,
    /// The network interface of an RDMA device's port.
    pub interface: Option<String>,
    /// What else a file said.
    pub attributes: Attributes,
}

/// What a process may use of the processors.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Allowance {
    /// The numbers of the logical processors it may run on.
    pub cores: Vec<u32>,
    /// How much processor time it may use, in thousandths of a processor, where its control group has a quota.
    pub quota_thousandths: Option<u64>,
}

impl PciDevice {
    /// Whether it is a bridge.
    #[must_use]
    pub fn is_switch(&self) -> bool {
        self.class.is_some_and(|class| class >> 8 == 0x0604)
    }

    /// Whether it is one of NVIDIA's NVLink switches.
    #[must_use]
    pub fn is_nvswitch(&self) -> bool {
        self.class.is_some_and(|class| class >> 8 == 0x0680) && self.vendor == Some(0x10de)
    }
}

impl PciDevice {
    /// Whether a virtual machine made it up, with a link whose speed means nothing: bridges of QEMU, some of which call
    /// themselves Red Hat's, some Texas Instruments' XIO3130, some Intel's 3420.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        is_emulated(self.vendor, self.device)
    }

    /// What its link towards the processor carries, in bytes per second in each direction; `None` where that isn't known.
    #[must_use]
    pub fn bytes_per_second(&self) -> Option<u64> {
        self.link.filter(|_| !self.is_emulated()).map(PciLink::bytes_per_second)
    }
}

pub(super) fn is_emulated(vendor: Option<u16>, device: Option<u16>) -> bool {
    matches!((vendor, device), (Some(0x1b36), _) | (Some(0x104c), Some(0x8232 | 0x8233)) | (Some(0x8086), Some(0x3420)))
}

impl NvLink {
    /// Whether it ends at an NVLink switch.
    #[must_use]
    pub fn is_to_switch(&self) -> bool {
        self.class >> 8 == 0x0680 && self.class != IBM_BRIDGE
    }
}

/// The class by which NVLinks of IBM's processors are known.
const IBM_BRIDGE: u32 = 0x06_8001;

impl Nic {
    /// Its name, or where it is.
    #[must_use]
    pub fn label(&self) -> String {
        match &self.name {
            Some(name) if self.port > 1 => format!("{name}:{}", self.port),
            Some(name) => name.clone(),
            None => format!("NIC{}", self.number),
        }
    }

    /// Whether nothing says that it is down.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.state.as_deref().is_none_or(|state| matches!(state, "ACTIVE" | "up" | "unknown"))
    }
}

impl Allowance {
    /// How many processors it may use at a time, one at least.
    #[must_use]
    pub fn at_once(&self) -> usize {
        let by_quota = self.quota_thousandths.map_or(usize::MAX, |quota| (quota / 1000) as usize);
        self.cores.len().min(by_quota).max(1)
    }
}

impl Machine {
    /// Adds a note, and logs it.
    pub(super) fn note(&mut self, note: String) {
        tracing::info!("topology: {note}");
        self.notes.push(note);
    }

    /// The place of the core with a number.
    pub(super) fn core_at(&self, id: u32) -> Option<usize> {
        self.cores.binary_search_by_key(&id, |core| core.id).ok()
    }

    /// The place of the device at an address, the first if a file is of several hosts.
    #[must_use]
    pub fn device_at(&self, address: PciAddress) -> Option<usize> {
        self.devices.iter().position(|device| device.address == address)
    }

    /// How many PCI switches there are.
    #[must_use]
    pub fn switches(&self) -> usize {
        self.devices.iter().filter(|device| device.is_switch()).count()
    }

    /// How many NVLink switches there are, by their PCI devices or else by what GPUs' links say (at least so many).
    #[must_use]
    pub fn nvswitches(&self) -> usize {
        let seen = self.devices.iter().filter(|device| device.is_nvswitch()).count();
        let links = self.gpus.iter().flat_map(|gpu| &gpu.links).filter(|link| link.is_to_switch());
        let told: std::collections::BTreeSet<&str> = links.map(|link| link.target.as_str()).collect();
        seen.max(told.len())
    }
}
