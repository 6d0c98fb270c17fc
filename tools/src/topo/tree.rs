//! A machine as a tree of lines: sockets, NUMA nodes, caches, PCI devices, with what each link carries.

use paceline_transport::machine::{Cache, CacheKind, Machine, Nic, NicKind, NumaNode, Part, list_text};

/// A line, and those below it.
#[derive(Default)]
pub(super) struct Branch {
    pub(super) kind: Kind,
    pub(super) line: String,
    pub(super) below: Vec<Branch>,
}

/// What a line is about.
#[derive(Clone, Copy, Default)]
pub(super) enum Kind {
    #[default]
    Machine,
    Package,
    Node,
    Cache,
    Device,
    Gpu,
    Nic,
    /// Something said of what is above.
    Remark,
}

/// A machine as a tree in text, with what couldn't be seen at the end.
pub(super) fn draw(machine: &Machine) -> String {
    let mut root = grown(machine);
    let (notes, parts) = root.below.drain(..).partition::<Vec<_>, _>(|branch| matches!(branch.kind, Kind::Remark));
    let mut text = format!("{}\n", root.line);
    grow(&parts, "", &mut text);
    notes.iter().for_each(|note| text.push_str(&format!("{}\n", note.line)));
    text
}

/// A machine as a tree, with what couldn't be seen as remarks at its root.
pub(super) fn grown(machine: &Machine) -> Branch {
    let mut root = Branch { kind: Kind::Machine, line: heading(machine), below: Vec::new() };
    let node = |at: usize| node(machine, at);
    for package in &machine.packages {
        let below = package.nodes.iter().map(|at| node(*at)).collect();
        root.below.push(Branch { kind: Kind::Package, line: format!("socket {}", package.id), below });
    }
    let in_packages = |at: &usize| machine.packages.iter().any(|package| package.nodes.contains(at));
    root.below.extend((0..machine.nodes.len()).filter(|at| !in_packages(at)).map(node));
    let lost = (0..machine.devices.len()).filter(|at| {
        let device = &machine.devices[*at];
        device.parent.is_none() && device.node.is_none()
    });
    let mut below: Vec<Branch> = lost.map(|at| device(machine, at)).collect();
    below.extend(loose_nics(machine, None));
    if !below.is_empty() {
        root.below.push(Branch { kind: Kind::Node, line: "near to an unknown NUMA node".to_owned(), below });
    }
    root.below.extend(machine.notes.iter().map(|note| remark(format!("note: {note}"))));
    root
}

fn remark(line: String) -> Branch {
    Branch { kind: Kind::Remark, line, below: Vec::new() }
}

fn grow(branches: &[Branch], indent: &str, text: &mut String) {
    for (at, branch) in branches.iter().enumerate() {
        let (fork, further) = if at + 1 == branches.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        text.push_str(&format!("{indent}{fork}{}\n", branch.line));
        grow(&branch.below, &format!("{indent}{further}"), text);
    }
}

fn heading(machine: &Machine) -> String {
    let mut line = [
        (machine.packages.len(), "socket", "s"),
        (machine.nodes.len(), "NUMA node", "s"),
        (machine.cores.len(), "processor", "s"),
        (machine.switches(), "PCI switch", "es"),
        (machine.nvswitches(), "NVSwitch", "es"),
        (machine.gpus.len(), "GPU", "s"),
        (machine.nics.len(), "network port", "s"),
    ]
    .iter()
    .filter(|(count, ..)| *count > 0)
    .map(|(count, one, many)| format!("{count} {one}{}", if *count == 1 { "" } else { many }))
    .collect::<Vec<_>>()
    .join(", ");
    if let Some(allowance) = &machine.allowance {
        line.push_str(&format!("; this process may use processors {}", list_text(&allowance.cores)));
        if let Some(quota) = allowance.quota_thousandths {
            line.push_str(&format!(", {} of them at a time", quota as f64 / 1000.0));
        }
    }
    line
}

fn node(machine: &Machine, at: usize) -> Branch {
    let node = &machine.nodes[at];
    let memory = node.memory_bytes.map_or(String::new(), |bytes| format!(", {}", binary(bytes)));
    let line = format!("node {}: {}{memory}", node.id, processors(node));
    let mut below = caches(machine, node);
    let tops = (0..machine.devices.len()).filter(|device| {
        let device = &machine.devices[*device];
        device.parent.is_none() && device.node == Some(at)
    });
    below.extend(tops.map(|at| device(machine, at)));
    below.extend(loose_nics(machine, Some(at)));
    Branch { kind: Kind::Node, line, below }
}

fn processors(node: &NumaNode) -> String {
    if node.cores.is_empty() { "no processors".to_owned() } else { format!("processors {}", list_text(&node.cores)) }
}

/// The caches of a node's cores: a line for each group that shares the widest, the narrower ones counted.
fn caches(machine: &Machine, node: &NumaNode) -> Vec<Branch> {
    let of_node = machine.caches.iter().filter(|cache| cache.kind != CacheKind::Instruction);
    let of_node = of_node.filter(|cache| cache.cores.iter().any(|core| node.cores.binary_search(core).is_ok()));
    let all: Vec<_> = of_node.collect();
    let Some(widest) = all.iter().map(|cache| cache.level).max() else { return Vec::new() };
    let line = |outer: &Cache| {
        let mut line = format!("L{} {}: processors {}", outer.level, size(outer.bytes), list_text(&outer.cores));
        for level in (1..outer.level).rev() {
            let is_within =
                |cache: &Cache| cache.level == level && cache.cores.iter().all(|core| outer.cores.contains(core));
            let within: Vec<&Cache> = all.iter().copied().filter(|cache| is_within(cache)).collect();
            if let Some(first) = within.first() {
                line.push_str(&format!(", L{level} {} x {}", within.len(), size(first.bytes)));
            }
        }
        line
    };
    let outer = all.iter().filter(|cache| cache.level == widest);
    outer.map(|outer| Branch { kind: Kind::Cache, line: line(outer), below: Vec::new() }).collect()
}

fn device(machine: &Machine, at: usize) -> Branch {
    let about = &machine.devices[at];
    let link = about.link.map_or(String::new(), |link| {
        let generation = link
            .generation()
            .map_or_else(|| format!("{} GT/s", link.gigatransfers()), |generation| format!("gen {generation}"));
        format!(", PCIe {generation} x{}, {}", link.width, rate(link.bytes_per_second()))
    });
    let mut below = Vec::new();
    let gpu = machine.gpus.iter().position(|gpu| gpu.device == at);
    let what = match gpu {
        Some(gpu) => {
            let about = &machine.gpus[gpu];
            let name = about.name.as_deref().map_or(String::new(), |name| format!(" {name}"));
            let links: u32 = about.links.iter().fold(0, |sum, link| sum.saturating_add(link.count));
            if links > 0 {
                let ways = if about.links.iter().all(|link| link.is_to_switch()) { " to switches" } else { "" };
                below.push(remark(format!("{links} NVLinks{ways}")));
            }
            let nearest: Vec<String> =
                machine.nearest_nics(Part::Gpu(gpu)).iter().map(|nic| machine.nics[*nic].label()).collect();
            if !nearest.is_empty() {
                below.push(remark(format!("nearest to {}", nearest.join(", "))));
            }
            format!("{}{name}", machine.label(Part::Gpu(gpu)))
        }
        None if about.is_switch() => "PCI switch".to_owned(),
        None if about.is_nvswitch() => "NVSwitch".to_owned(),
        None => class(about.class).to_owned(),
    };
    below.extend(machine.nics.iter().filter(|nic| nic.device == Some(at)).map(nic));
    let behind = (0..machine.devices.len()).filter(|child| machine.devices[*child].parent == Some(at));
    below.extend(behind.map(|child| device(machine, child)));
    let kind = if gpu.is_some() { Kind::Gpu } else { Kind::Device };
    Branch { kind, line: format!("{what} {}{link}", about.address), below }
}

fn class(class: Option<u32>) -> &'static str {
    match class.map(|class| class >> 16) {
        Some(0x01) => "storage",
        Some(0x02) => "network device",
        Some(0x03) => "display",
        Some(0x12) => "accelerator",
        _ => "device",
    }
}

fn loose_nics(machine: &Machine, node: Option<usize>) -> impl Iterator<Item = Branch> {
    machine.nics.iter().filter(move |nic| nic.device.is_none() && nic.node == node).map(nic)
}

fn nic(nic: &Nic) -> Branch {
    let kind = match nic.kind {
        NicKind::Ethernet => "Ethernet",
        NicKind::InfiniBand => "InfiniBand",
        NicKind::Roce => "RoCE",
        NicKind::Unknown => "network",
    };
    let speed = nic
        .bytes_per_second
        .map_or("speed unknown".to_owned(), |bytes| format!("{} Gb/s, {}", bytes as f64 * 8.0 / 1e9, rate(bytes)));
    let interface = nic.interface.as_deref().map_or(String::new(), |name| format!(", interface {name}"));
    let state = nic.state.as_deref().map_or(String::new(), |state| format!(", {state}"));
    Branch { kind: Kind::Nic, line: format!("{}: {kind}, {speed}{interface}{state}", nic.label()), below: Vec::new() }
}

fn rate(bytes_per_second: u64) -> String {
    format!("{:.1} GB/s", bytes_per_second as f64 / 1e9)
}

fn size(bytes: Option<u64>) -> String {
    bytes.map_or("?".to_owned(), binary)
}

fn binary(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 30 => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
        bytes if bytes >= 1 << 20 => format!("{} MiB", (bytes >> 19) as f64 / 2.0),
        bytes => format!("{} KiB", bytes >> 10),
    }
}
