//! What the kernel says of the host's RDMA devices, read from its file tree: `/sys/class/infiniband`.

#![forbid(unsafe_code)]

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// Where the tree is mounted.
pub(super) const ROOT: &str = "/sys";

/// What carries a port's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(super) enum LinkLayer {
    Ethernet,
    InfiniBand,
}

/// How packets with an address look.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
pub(super) enum GidKind {
    InfiniBand,
    RoceV1,
    RoceV2,
}

/// A row of a port's table of addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct GidRow {
    pub(super) index: u8,
    pub(super) gid: Gid,
    pub(super) kind: GidKind,
    /// The network interface that has the address.
    pub(super) interface: Option<String>,
}

/// An address of a port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Gid(pub(super) [u8; 16]);

/// A port, as the kernel describes it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct PortFacts {
    pub(super) device: String,
    pub(super) port: u8,
    pub(super) layer: LinkLayer,
    /// `ACTIVE`, `DOWN` and so on.
    pub(super) state: String,
    /// `LinkUp`, `Disabled` and so on.
    pub(super) physical_state: String,
    /// In Gb/s, 0 where the kernel doesn't say.
    pub(super) rate_gbps: f64,
    /// The memory it is near to.
    pub(super) node: Option<u32>,
    /// The device is a program of the kernel's (rxe, siw): its work takes processor time.
    pub(super) is_software: bool,
    pub(super) gids: Vec<GidRow>,
}

impl PortFacts {
    pub(super) fn name(&self) -> String {
        format!("{} port {}", self.device, self.port)
    }

    pub(super) fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }

    /// Its physical state as it is now.
    pub(super) fn physical_state_now(&self) -> String {
        let folder = Path::new("/sys/class/infiniband").join(&self.device).join("ports").join(self.port.to_string());
        state(&folder.join("phys_state"))
    }

    /// The network interfaces behind it.
    pub(super) fn interfaces(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.gids.iter().filter_map(|row| row.interface.as_deref()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl Gid {
    pub(super) fn ipv6(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.0)
    }

    pub(super) fn ipv4(&self) -> Option<Ipv4Addr> {
        self.ipv6().to_ipv4_mapped()
    }

    pub(super) fn is_link_local(&self) -> bool {
        self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80
    }

    /// The upper half, which all ports of an InfiniBand subnet share.
    pub(super) fn prefix(&self) -> [u8; 8] {
        std::array::from_fn(|at| self.0[at])
    }

    /// By which LID routers that forward by LIDs know the InfiniBand subnet; 0 if they don't.
    pub(super) fn router_lid(&self) -> u16 {
        u16::from_be_bytes([self.0[4], self.0[5]])
    }
}

impl std::fmt::Display for Gid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.ipv4() {
            Some(address) => address.fmt(f),
            None => self.ipv6().fmt(f),
        }
    }
}

impl std::fmt::Display for GidKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            GidKind::InfiniBand => "InfiniBand",
            GidKind::RoceV1 => "RoCE v1",
            GidKind::RoceV2 => "RoCE v2",
        })
    }
}

fn text(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The names of what is in a folder, in order; those that are numbers by their number.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_by_key(|name| (name.parse::<u32>().unwrap_or(u32::MAX), name.clone()));
    names
}

/// All ports, by device and number.
pub(super) fn ports(root: &Path) -> Vec<PortFacts> {
    let class = root.join("class/infiniband");
    let of_device = |device: String| {
        let folder = class.join(&device);
        let node = text(&folder.join("device/numa_node")).and_then(|node| node.parse().ok());
        // A real device has a parent on a bus.
        let is_software = std::fs::read_link(&folder).is_ok_and(|place| place.iter().any(|part| part == "virtual"));
        let ports = names(&folder.join("ports"));
        ports
            .into_iter()
            .filter_map(move |port| read_port(&folder.join("ports").join(&port), &device, &port, (node, is_software)))
    };
    names(&class).into_iter().flat_map(of_device).collect()
}

fn read_port(folder: &Path, device: &str, port: &str, (node, is_software): (Option<u32>, bool)) -> Option<PortFacts> {
    let port = port.parse().ok()?;
    let layer = match text(&folder.join("link_layer")).as_deref() {
        Some("InfiniBand") => LinkLayer::InfiniBand,
        _ => LinkLayer::Ethernet,
    };
    // "100 Gb/sec (4X EDR)"
    let rate = text(&folder.join("rate")).and_then(|rate| rate.split(' ').next()?.parse().ok());
    let rows = names(&folder.join("gids"));
    let gids = rows.iter().filter_map(|row| read_gid(folder, row, layer)).collect();
    let (device, physical_state) = (device.to_owned(), state(&folder.join("phys_state")));
    let rate_gbps = rate.unwrap_or(0.0);
    Some(PortFacts {
        device,
        port,
        layer,
        state: state(&folder.join("state")),
        physical_state,
        rate_gbps,
        node,
        is_software,
        gids,
    })
}

/// A state that a file names behind its number: "4: ACTIVE".
fn state(file: &Path) -> String {
    let said: Option<String> = text(file);
    said.map_or_else(|| "unknown".to_owned(), |said| said.split(": ").last().unwrap_or_default().to_owned())
}

/// A row of the table; `None` if it is empty.
fn read_gid(folder: &Path, row: &str, layer: LinkLayer) -> Option<GidRow> {
    let index = row.parse().ok()?;
    let gid = Gid(text(&folder.join("gids").join(row))?.parse::<Ipv6Addr>().ok()?.octets());
    // Unused rows are zero, or hold a prefix only.
    if gid.0[8..].iter().all(|byte| *byte == 0) {
        return None;
    }
    let kind = match text(&folder.join("gid_attrs/types").join(row)).as_deref() {
        _ if layer == LinkLayer::InfiniBand => GidKind::InfiniBand,
        Some("RoCE v2") => GidKind::RoceV2,
        // The kernel calls it "IB/RoCE v1"; a row without an interface can't be read and isn't in use.
        Some(_) => GidKind::RoceV1,
        None => return None,
    };
    let interface = text(&folder.join("gid_attrs/ndevs").join(row)).filter(|name| !name.is_empty());
    Some(GidRow { index, gid, kind, interface })
}

/// The memory that the processor which runs this thread is near to.
pub(super) fn my_node(root: &Path) -> Option<u32> {
    let folder = root.join(format!("devices/system/cpu/cpu{}", rustix::thread::sched_getcpu()));
    names(&folder).iter().find_map(|name| name.strip_prefix("node")?.parse().ok())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A tree like the kernel's.
    pub(crate) struct Tree(pub(crate) tempfile::TempDir);

    impl Tree {
        pub(crate) fn new() -> Tree {
            Tree(tempfile::tempdir().unwrap())
        }

        pub(crate) fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{text}\n")).unwrap();
        }

        /// A port with some rows of addresses.
        pub(crate) fn port(&self, device: &str, node: &str, layer: &str, state: &str, rows: &[(&str, &str, &str)]) {
            let at = |rest: &str| format!("class/infiniband/{device}/{rest}");
            self.write(&at("device/numa_node"), node);
            self.write(&at("ports/1/link_layer"), layer);
            self.write(&at("ports/1/state"), state);
            self.write(&at("ports/1/phys_state"), "5: LinkUp");
            self.write(&at("ports/1/rate"), "100 Gb/sec (4X EDR)");
            for (index, (gid, kind, interface)) in rows.iter().enumerate() {
                self.write(&at(&format!("ports/1/gids/{index}")), gid);
                if !kind.is_empty() {
                    self.write(&at(&format!("ports/1/gid_attrs/types/{index}")), kind);
                    self.write(&at(&format!("ports/1/gid_attrs/ndevs/{index}")), interface);
                }
            }
        }
    }

    #[test]
    fn a_port_is_read_as_the_kernel_writes_it() {
        let tree = Tree::new();
        let rows = [
            ("fe80:0000:0000:0000:5054:00ff:fe12:3456", "IB/RoCE v1", "eth0"),
            ("fe80:0000:0000:0000:5054:00ff:fe12:3456", "RoCE v2", "eth0"),
            ("0000:0000:0000:0000:0000:ffff:0a00:020f", "RoCE v2", "eth0"),
            ("0000:0000:0000:0000:0000:0000:0000:0000", "RoCE v2", ""),
            ("fe80:0000:0000:0000:0000:0000:0000:0000", "", ""),
        ];
        tree.port("rxe0", "-1", "Ethernet", "4: ACTIVE", &rows);
        tree.port("mlx5_1", "1", "InfiniBand", "1: DOWN", &[("fe80::1234", "", "")]);
        let ports = ports(tree.0.path());
        let [ib, roce] = &ports[..] else { panic!("{ports:?}") };
        assert_eq!((ib.name().as_str(), ib.layer, ib.node), ("mlx5_1 port 1", LinkLayer::InfiniBand, Some(1)));
        assert_eq!((ib.state.as_str(), ib.gids.len(), ib.gids[0].kind), ("DOWN", 1, GidKind::InfiniBand));
        assert!(roce.is_active() && roce.node.is_none() && roce.rate_gbps == 100.0);
        let seen: Vec<_> = roce.gids.iter().map(|row| (row.index, row.kind, row.gid.to_string())).collect();
        let local = "fe80::5054:ff:fe12:3456".to_owned();
        let want = [
            (0, GidKind::RoceV1, local.clone()),
            (1, GidKind::RoceV2, local),
            (2, GidKind::RoceV2, "10.0.2.15".to_owned()),
        ];
        assert_eq!(seen, want);
        assert_eq!(roce.interfaces(), ["eth0"]);
    }

    #[test]
    fn a_device_without_a_bus_is_software() {
        let tree = Tree::new();
        let class = tree.0.path().join("class/infiniband");
        for (device, place) in [("rxe0", "devices/virtual/infiniband"), ("mlx5_0", "devices/pci0000:00/infiniband")] {
            for (file, content) in [("state", "4: ACTIVE"), ("link_layer", "Ethernet")] {
                tree.write(&format!("{place}/{device}/ports/1/{file}"), content);
            }
            std::fs::create_dir_all(&class).unwrap();
            std::os::unix::fs::symlink(format!("../../{place}/{device}"), class.join(device)).unwrap();
        }
        let found: Vec<_> = ports(tree.0.path()).into_iter().map(|port| (port.device, port.is_software)).collect();
        assert_eq!(found, [("mlx5_0".to_owned(), false), ("rxe0".to_owned(), true)]);
    }

    #[test]
    fn a_host_without_devices_has_no_ports() {
        assert!(ports(Tree::new().0.path()).is_empty());
    }
}
