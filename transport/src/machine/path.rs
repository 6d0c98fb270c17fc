//! Paths between parts: which kind of link joins them at best, and what its narrowest hop carries.

use super::{Machine, links};

/// A part of a machine, by its place in the list of its kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[allow(missing_docs)]
pub enum Part {
    Core(usize),
    Node(usize),
    Device(usize),
    Gpu(usize),
    Nic(usize),
    /// Whatever is beyond the network ports.
    Network,
}

/// What joins two parts, the nearest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum PathClass {
    /// They are one.
    Same,
    /// Cores that share a cache, or the threads of one core.
    Cache,
    /// Processors and memory of one NUMA node.
    Numa,
    /// NVLinks, from one to the other or through switches for them.
    NvLink,
    /// One PCI switch, or one card.
    Switch,
    /// Several PCI switches, but no processor.
    Switches,
    /// A processor's host bridge, or several of one NUMA node.
    HostBridge,
    /// NUMA nodes of one socket.
    Package,
    /// The link between sockets; also where nobody says which NUMA node is near.
    Sockets,
    /// A network.
    Network,
}

/// A path between two parts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Path {
    /// What joins them.
    pub class: PathClass,
    /// What its narrowest hop carries in each direction; `None` where no hop's bandwidth is known.
    pub bytes_per_second: Option<u64>,
    /// How many NVLinks it uses side by side.
    pub nvlinks: u32,
}

impl PathClass {
    /// In the letters of `nvidia-smi topo -m` where it has any.
    #[must_use]
    pub fn letters(self) -> &'static str {
        match self {
            PathClass::Same => "X",
            PathClass::Cache => "L",
            PathClass::Numa => "NUMA",
            PathClass::NvLink => "NV",
            PathClass::Switch => "PIX",
            PathClass::Switches => "PXB",
            PathClass::HostBridge => "PHB",
            PathClass::Package => "PKG",
            PathClass::Sockets => "SYS",
            PathClass::Network => "NET",
        }
    }
}

/// The narrower of two hops; one that nobody knows narrows nothing.
fn narrower(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}

impl Path {
    fn new(class: PathClass, bytes_per_second: Option<u64>) -> Path {
        Path { class, bytes_per_second, nvlinks: 0 }
    }
}

impl Machine {
    /// The best path between two parts.
    ///
    /// # Panics
    ///
    /// If a part isn't of this machine.
    #[must_use]
    pub fn path(&self, from: Part, to: Part) -> Path {
        let is_device = matches!(from, Part::Device(_)) || matches!(to, Part::Device(_));
        if from == to || is_device && self.device_of(from) == self.device_of(to) {
            return Path::new(PathClass::Same, None);
        }
        match (from, to) {
            (Part::Network, part) | (part, Part::Network) => self.to_network(part),
            (Part::Gpu(a), Part::Gpu(b)) => self.nvlinks(a, b).unwrap_or_else(|| self.by_place(from, to)),
            (Part::Core(a), Part::Core(b)) if self.share_cache(a, b) => Path::new(PathClass::Cache, None),
            _ => self.by_place(from, to),
        }
    }

    /// The network ports that are nearest to a part, and of these the fastest; those that are down count only if all are.
    #[must_use]
    pub fn nearest_nics(&self, part: Part) -> Vec<usize> {
        let here = || (0..self.nics.len()).filter(|nic| self.share_host(part, Part::Nic(*nic)));
        let any_up = here().any(|nic| self.nics[nic].is_up());
        let usable = here().filter(|nic| self.nics[*nic].is_up() || !any_up);
        let rated = usable.map(|nic| {
            let path = self.path(part, Part::Nic(nic));
            let speed = narrower(path.bytes_per_second, self.nics[nic].bytes_per_second);
            ((path.class, std::cmp::Reverse(speed)), nic)
        });
        let rated: Vec<_> = rated.collect();
        let best = rated.iter().map(|(rate, _)| *rate).min();
        rated.iter().filter(|(rate, _)| Some(*rate) == best).map(|(_, nic)| *nic).collect()
    }

    fn to_network(&self, part: Part) -> Path {
        let through = |nic: usize| {
            let path = self.path(part, Part::Nic(nic));
            narrower(path.bytes_per_second, self.nics[nic].bytes_per_second)
        };
        let best = match part {
            Part::Network => None,
            Part::Nic(nic) => self.nics[nic].bytes_per_second,
            _ => self.nearest_nics(part).first().and_then(|nic| through(*nic)),
        };
        Path::new(PathClass::Network, best)
    }

    /// Over NVLinks from one to the other, or through their switches; all switches are taken to be one fabric.
    fn nvlinks(&self, a: usize, b: usize) -> Option<Path> {
        let (a, b) = (&self.gpus[a], &self.gpus[b]);
        let is_at = |target: &str, device: usize| {
            target.parse() == Ok(self.devices[device].address) && self.devices[device].class.is_some()
        };
        let direct = a.links.iter().filter(|link| is_at(&link.target, b.device)).map(|link| link.count);
        let to_switch = |gpu: &super::Gpu| {
            let links = gpu.links.iter().filter(|link| link.is_to_switch());
            links.fold(0u32, |sum, link| sum.saturating_add(link.count))
        };
        let count = match direct.fold(0u32, u32::saturating_add) {
            0 => to_switch(a).min(to_switch(b)),
            direct => direct,
        };
        let each = links::nvlink(a.sm).min(links::nvlink(b.sm));
        let rate = u64::from(count).saturating_mul(each);
        (count > 0).then_some(Path { class: PathClass::NvLink, bytes_per_second: Some(rate), nvlinks: count })
    }

    fn share_cache(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.cores[a], self.cores[b].id);
        let shared = |cores: &[u32]| cores.binary_search(&a.id).is_ok() && cores.binary_search(&b).is_ok();
        shared(&a.threads) || self.caches.iter().any(|cache| shared(&cache.cores))
    }

    /// By the PCI tree and the NUMA nodes.
    fn by_place(&self, from: Part, to: Part) -> Path {
        let (a, b) = (self.device_of(from), self.device_of(to));
        let (up_a, up_b) = (self.upwards(a), self.upwards(b));
        if !self.share_host(from, to) {
            let ways = [from, to].map(|part| self.to_network(part).bytes_per_second);
            return Path::new(PathClass::Network, narrower(ways[0], ways[1]));
        }
        if let Some(path) = self.below_bridge(&up_a, &up_b) {
            return path;
        }
        let pci = up_a.iter().chain(&up_b).filter_map(|at| self.devices[*at].bytes_per_second()).min();
        let (Some(node_a), Some(node_b)) = (self.node_of(from), self.node_of(to)) else {
            return Path::new(PathClass::Sockets, pci);
        };
        let package = |node: usize| self.nodes[node].package;
        if node_a == node_b {
            let class = if a.or(b).is_some() { PathClass::HostBridge } else { PathClass::Numa };
            Path::new(class, pci)
        } else if package(node_a).is_some() && package(node_a) == package(node_b) {
            Path::new(PathClass::Package, pci)
        } else {
            let sockets = [node_a, node_b].map(|node| links::between_sockets(&self.nodes[node].processor));
            Path::new(PathClass::Sockets, narrower(pci, narrower(sockets[0], sockets[1])))
        }
    }

    /// The path that turns back at a switch, if one does; from each device up to the top.
    fn below_bridge(&self, a: &[usize], b: &[usize]) -> Option<Path> {
        let (first, other) = (*a.first()?, *b.first()?);
        if self.devices[first].address.is_same_device(self.devices[other].address) {
            let rate = self.devices[first].bytes_per_second();
            return Some(Path::new(PathClass::Switch, rate));
        }
        let turn = *a.iter().find(|at| b.contains(at))?;
        let below = || [a, b].into_iter().flat_map(|way| way.iter().take_while(|at| **at != turn));
        let rate = below().filter_map(|at| self.devices[*at].bytes_per_second()).min();
        // The devices at both ends are no hops; the switch where the path turns is one.
        let between = below().filter(|at| **at != first && **at != other).count();
        let class = if between == 0 { PathClass::Switch } else { PathClass::Switches };
        Some(Path::new(class, rate))
    }

    /// Whether two parts are of one host; files may be of several.
    fn share_host(&self, from: Part, to: Part) -> bool {
        let host = |part: Part| self.node_of(part).map(|node| self.nodes[node].attributes.get("host_hash"));
        host(from).zip(host(to)).is_none_or(|(a, b)| a == b)
    }

    /// A device and the switches above it; empty for none.
    fn upwards(&self, device: Option<usize>) -> Vec<usize> {
        std::iter::successors(device, |at| self.devices[*at].parent).collect()
    }

    fn device_of(&self, part: Part) -> Option<usize> {
        match part {
            Part::Device(device) => Some(device),
            Part::Gpu(gpu) => Some(self.gpus[gpu].device),
            Part::Nic(nic) => self.nics[nic].device,
            Part::Core(_) | Part::Node(_) | Part::Network => None,
        }
    }

    pub(super) fn node_of(&self, part: Part) -> Option<usize> {
        match part {
            Part::Core(core) => self.cores[core].node,
            Part::Node(node) => Some(node),
            Part::Nic(nic) => self.nics[nic].node,
            Part::Device(_) | Part::Gpu(_) => self.device_of(part).and_then(|device| self.devices[device].node),
            Part::Network => None,
        }
    }
}
