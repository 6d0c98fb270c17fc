//! Sockets, NUMA nodes, cores and caches, and what of them this process may use.

use std::path::{Path, PathBuf};

use super::source::{Source, number, numbered, text};
use super::{Allowance, CORES_MAX, Cache, CacheKind, Core, Machine, NumaNode, Package, Processor, lists};

/// The most caches that one processor is asked for.
const CACHES_MAX: usize = 16;

/// Reads the processors into an empty machine.
pub(super) fn read(source: &Source, machine: &mut Machine) {
    cores(source, machine);
    caches(source, machine);
    nodes(source, machine);
    packages(machine);
    surroundings(source, machine);
    allowance(source, machine);
}

fn cores(source: &Source, machine: &mut Machine) {
    let folder = source.sys("devices/system/cpu");
    let listed = |name: &str| text(&folder.join(name)).and_then(|text| lists::list(&text));
    let ids = listed("online").or_else(|| listed("present")).unwrap_or_else(|| {
        let seen = numbered(&folder, "cpu").into_iter().filter(|id| *id < CORES_MAX).collect();
        machine.note(format!("{} doesn't list the processors: those with a folder count", folder.display()));
        seen
    });
    if ids.is_empty() {
        machine.note("no processor is seen: /sys is hidden or not mounted".to_owned());
    }
    let mut silent = 0;
    for id in ids {
        let about = folder.join(format!("cpu{id}/topology"));
        let package = number(&about.join("physical_package_id"));
        silent += usize::from(package.is_none());
        let threads = text(&about.join("thread_siblings_list")).and_then(|text| lists::list(&text));
        let threads = threads.filter(|threads| threads.contains(&id)).unwrap_or_else(|| vec![id]);
        machine.cores.push(Core { id, package, node: None, threads });
    }
    if silent > 0 {
        machine.note(format!("{silent} of {} processors don't say in which socket they are", machine.cores.len()));
    }
}

fn caches(source: &Source, machine: &mut Machine) {
    let mut found: Vec<Cache> = Vec::new();
    // By the place in a processor's list of caches: the processors of which the cache there is known already.
    let mut known: Vec<Vec<bool>> = Vec::new();
    for core in &machine.cores {
        let folder = source.sys(&format!("devices/system/cpu/cpu{}/cache", core.id));
        for at in 0..CACHES_MAX {
            if known.get(at).is_some_and(|known| known.get(core.id as usize) == Some(&true)) {
                continue;
            }
            let about = folder.join(format!("index{at}"));
            let Some(level) = number::<u32>(&about.join("level")) else { break };
            let kind = match text(&about.join("type")).as_deref() {
                Some("Data") => CacheKind::Data,
                Some("Instruction") => CacheKind::Instruction,
                _ => CacheKind::Unified,
            };
            let cores = text(&about.join("shared_cpu_list")).and_then(|text| lists::list(&text));
            let cores = cores.filter(|cores| cores.contains(&core.id)).unwrap_or_else(|| vec![core.id]);
            known.resize_with(known.len().max(at + 1), Vec::new);
            let known = &mut known[at];
            let last = *cores.last().expect("the core itself") as usize;
            known.resize(known.len().max(last + 1), false);
            cores.iter().for_each(|core| known[*core as usize] = true);
            let bytes = text(&about.join("size")).and_then(|text| size(&text));
            found.push(Cache { level, kind, bytes, cores });
        }
    }
    if found.is_empty() && !machine.cores.is_empty() {
        machine.note("no processor says what caches it has: which share one isn't known".to_owned());
    }
    found.sort_by(|a, b| (a.level, &a.cores).cmp(&(b.level, &b.cores)));
    machine.caches = found;
}

/// The kernel's sizes: `512K`.
fn size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(digits) => (digits, text.as_bytes()[text.len() - 1]),
        None => (text, b' '),
    };
    let shift = match unit {
        b'K' => 10,
        b'M' => 20,
        b'G' => 30,
        _ => 0,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn nodes(source: &Source, machine: &mut Machine) {
    let folder = source.sys("devices/system/node");
    let processor = processor(source);
    let ids = numbered(&folder, "node");
    for id in ids.iter().filter_map(|id| i32::try_from(*id).ok()) {
        let about = folder.join(format!("node{id}"));
        let listed = text(&about.join("cpulist")).and_then(|text| lists::list(&text)).unwrap_or_default();
        let cores: Vec<u32> = listed.into_iter().filter(|core| machine.core_at(*core).is_some()).collect();
        let memory = text(&about.join("meminfo"))
            .and_then(|text| text.split_once("MemTotal:")?.1.split_whitespace().next()?.parse::<u64>().ok());
        let memory_bytes = memory.and_then(|kilobytes| kilobytes.checked_mul(1024));
        machine.nodes.push(NumaNode { id, cores, memory_bytes, processor: processor.clone(), ..NumaNode::default() });
    }
    if machine.nodes.is_empty() {
        machine.note("no NUMA nodes are seen: all processors and devices count as one node's".to_owned());
        let cores = machine.cores.iter().map(|core| core.id).collect();
        machine.nodes.push(NumaNode { cores, processor, ..NumaNode::default() });
    }
    for node in 0..machine.nodes.len() {
        for id in machine.nodes[node].cores.clone() {
            let core = machine.core_at(id).expect("only cores that are there");
            machine.cores[core].node.get_or_insert(node);
            let package = machine.cores[core].package;
            machine.nodes[node].package = machine.nodes[node].package.or(package);
        }
    }
    let homeless = machine.cores.iter().filter(|core| core.node.is_none()).count();
    if homeless > 0 {
        machine.note(format!("{homeless} processors are in no NUMA node"));
    }
}

fn packages(machine: &mut Machine) {
    let mut ids: Vec<u32> = machine.cores.iter().filter_map(|core| core.package).collect();
    ids.sort_unstable();
    ids.dedup();
    for id in ids {
        let nodes = (0..machine.nodes.len()).filter(|node| machine.nodes[*node].package == Some(id)).collect();
        machine.packages.push(Package { id, nodes });
    }
}

/// The processors' kind, from the text by which the kernel finds modules for them.
fn processor(source: &Source) -> Processor {
    const VENDORS: &[(u32, &str)] =
        &[(0, "GenuineIntel"), (2, "AuthenticAMD"), (5, "CentaurHauls"), (9, "HygonGenuine"), (10, "  Shanghai  ")];
    let alias = text(&source.sys("devices/system/cpu/modalias")).unwrap_or_default();
    let field = |name: &str| {
        let digits = alias.split_once(name)?.1;
        let end =
            digits.find(|char: char| !char.is_ascii_hexdigit() || char.is_ascii_lowercase()).unwrap_or(digits.len());
        u32::from_str_radix(&digits[..end], 16).ok()
    };
    match alias.strip_prefix("cpu:type:").and_then(|rest| rest.split([',', ':']).next()) {
        Some("x86") => Processor {
            arch: Some("x86_64".to_owned()),
            vendor: field("ven").and_then(|ven| VENDORS.iter().find(|row| row.0 == ven)).map(|row| row.1.to_owned()),
            family: field("fam"),
            model: field("mod"),
        },
        // NCCL's word for it.
        Some("aarch64") => Processor { arch: Some("arm64".to_owned()), ..Processor::default() },
        Some(arch) if !arch.is_empty() => Processor { arch: Some(arch.to_owned()), ..Processor::default() },
        _ => Processor::default(),
    }
}

/// Notes where this isn't a whole machine.
fn surroundings(source: &Source, machine: &mut Machine) {
    let flags =
        source.proc_text("cpuinfo").is_some_and(|text| text.split_whitespace().any(|word| word == "hypervisor"));
    if flags || source.sys("hypervisor/type").exists() {
        machine.note(
            "this is a virtual machine: its host may show fewer sockets, nodes and PCI switches than there are"
                .to_owned(),
        );
    }
    let groups = source.proc_text("self/cgroup").unwrap_or_default();
    if ["docker", "kubepods", "containerd", "libpod", "lxc"].iter().any(|word| groups.contains(word)) {
        machine.note("this is a container: devices and interfaces outside it aren't seen".to_owned());
    }
}

/// What this process may use; only where the tree tells of a process.
fn allowance(source: &Source, machine: &mut Machine) {
    let status = source.proc_text("thread-self/status").or_else(|| source.proc_text("self/status"));
    let listed = status.and_then(|text| lists::list(text.split_once("Cpus_allowed_list:")?.1.lines().next()?));
    let Some(mut cores) = listed else { return };
    cores.retain(|core| machine.core_at(*core).is_some());
    let groups = ControlGroups::read(source);
    if let Some(set) = groups.processors() {
        cores.retain(|core| set.contains(core));
    }
    machine.allowance =
        Some(Allowance { cores, quota_thousandths: groups.quota().map(|quota| (quota * 1000.0) as u64) });
}

/// The folders of this process's control groups, each with those above it.
pub(super) struct ControlGroups {
    /// One tree for all (version 2).
    unified: Vec<PathBuf>,
    processor: Vec<PathBuf>,
    processor_set: Vec<PathBuf>,
}

impl ControlGroups {
    pub(super) fn read(source: &Source) -> ControlGroups {
        let groups = source.proc_text("self/cgroup").unwrap_or_else(|| "0::/".to_owned());
        let folders = |mount: &str, path: &str| {
            let parts = path.split('/').filter(|part| !matches!(*part, "" | "." | ".."));
            let mut folders = vec![source.sys("fs/cgroup").join(mount)];
            parts.for_each(|part| folders.push(folders[folders.len() - 1].join(part)));
            folders
        };
        let mut found = ControlGroups { unified: Vec::new(), processor: Vec::new(), processor_set: Vec::new() };
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            let has = |name: &str| controllers.split(',').any(|controller| controller == name);
            if controllers.is_empty() {
                found.unified = folders("", path);
            }
            if has("cpu") {
                let joint = source.sys("fs/cgroup").join(controllers);
                found.processor = folders(if joint.is_dir() { controllers } else { "cpu" }, path);
            }
            if has("cpuset") {
                found.processor_set = folders("cpuset", path);
            }
        }
        found
    }

    /// The files that are read of them, from where control groups are mounted.
    pub(super) fn files(&self) -> Vec<String> {
        let below = |folders: &[PathBuf], names: &[&str]| {
            let root = folders.first().and_then(|first| first.ancestors().find(|path| path.ends_with("fs/cgroup")));
            let root = root.unwrap_or(Path::new("")).to_owned();
            let files = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
            let files = files.filter_map(|file| Some(file.strip_prefix(&root).ok()?.display().to_string()));
            files.collect::<Vec<_>>()
        };
        [
            below(&self.unified, &["cpu.max", "cpuset.cpus.effective"]),
            below(&self.processor, &["cpu.cfs_quota_us", "cpu.cfs_period_us"]),
            below(&self.processor_set, &["cpuset.effective_cpus"]),
        ]
        .concat()
    }

    /// The processors that the innermost group with a set allows.
    fn processors(&self) -> Option<Vec<u32>> {
        let unified = self.unified.iter().map(|folder| folder.join("cpuset.cpus.effective"));
        let own = self.processor_set.iter().map(|folder| folder.join("cpuset.effective_cpus"));
        let mut sets = unified.chain(own).filter_map(|path| lists::list(&text(&path)?));
        sets.rfind(|set| !set.is_empty())
    }

    /// The smallest quota of all groups, in processors.
    fn quota(&self) -> Option<f64> {
        let ratio = |quota: f64, period: f64| (quota > 0.0 && period > 0.0).then_some(quota / period);
        let unified = self.unified.iter().filter_map(|folder| {
            let text = text(&folder.join("cpu.max"))?;
            let (quota, period) = text.split_once(' ')?;
            ratio(quota.parse().ok()?, period.parse().ok()?)
        });
        let own = self.processor.iter().filter_map(|folder| {
            ratio(number(&folder.join("cpu.cfs_quota_us"))?, number(&folder.join("cpu.cfs_period_us"))?)
        });
        unified.chain(own).min_by(f64::total_cmp)
    }
}
