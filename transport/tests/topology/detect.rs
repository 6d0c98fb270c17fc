//! Detection in made-up trees: PCI switches, GPUs with their links, containers and virtual machines that hide parts.

use paceline_transport::machine::{GpuFacts, GpuLinks, Machine, NvLink, Part, PathClass, Source};

use crate::fixtures::{from_record, machine};

/// What a device's folder says.
fn device(path: &str, class: &str, vendor: &str, link: (&str, &str)) -> String {
    let name = path.rsplit('/').next().unwrap();
    let folder = format!("sys/devices/pci0000:00/{path}");
    format!(
        "{folder}/class = {class}\n{folder}/vendor = {vendor}\n{folder}/device = 0x0001\n{folder}/max_link_speed = {} GT/s PCIe\n\
         {folder}/max_link_width = {}\n{folder}/numa_node = -1\nsys/bus/pci/devices/{name} -> ../../../devices/pci0000:00/{path}\n",
        link.0, link.1
    )
}

const ONE_NODE: &str = "sys/devices/system/cpu/online = 0-3\nsys/devices/system/node/node0/cpulist = 0-3\n";

/// A processor's port, a switch with three ports, and behind them two GPUs and a network device, one GPU in a narrow slot.
fn switched(port_vendor: &str) -> String {
    let (up, wide) = (("16.0", "16"), ("32.0", "16"));
    let port = "0000:00:01.0";
    let switch = format!("{port}/0000:01:00.0");
    ONE_NODE.to_owned()
        + &device(port, "0x060400", port_vendor, ("2.5", "1"))
        + &device(&switch, "0x060400", "0x1000", up)
        + &device(&format!("{switch}/0000:02:00.0"), "0x060400", "0x1000", wide)
        + &device(&format!("{switch}/0000:02:00.0/0000:03:00.0"), "0x030200", "0x10de", wide)
        + &device(&format!("{switch}/0000:02:01.0"), "0x060400", "0x1000", ("16.0", "8"))
        + &device(&format!("{switch}/0000:02:01.0/0000:04:00.0"), "0x030200", "0x10de", wide)
        + &device(&format!("{switch}/0000:02:02.0"), "0x060400", "0x1000", wide)
        + &device(&format!("{switch}/0000:02:02.0/0000:05:00.0"), "0x020000", "0x15b3", wide)
}

#[test]
fn a_switch_counts_once_and_a_link_as_its_lesser_end() {
    let machine = from_record(&switched("0x8086"));
    assert_eq!((machine.switches(), machine.gpus.len(), machine.devices.len()), (1, 2, 4));
    let path = machine.path(Part::Gpu(0), Part::Gpu(1));
    assert_eq!((path.class, path.bytes_per_second.unwrap() / 100_000_000), (PathClass::Switch, 144));
    let nic = machine.devices.iter().position(|device| device.address.to_string() == "0000:05:00.0").unwrap();
    let path = machine.path(Part::Gpu(0), Part::Device(nic));
    assert_eq!((path.class, path.bytes_per_second.unwrap() / 100_000_000), (PathClass::Switch, 576));
    // The processor's port says x1 at 2.5 GT/s.
    let path = machine.path(Part::Gpu(0), Part::Node(0));
    assert_eq!((path.class, path.bytes_per_second.unwrap() / 1_000_000), (PathClass::HostBridge, 228));
    assert!(machine.notes.iter().any(|note| note.contains("NVLinks aren't known")), "{:?}", machine.notes);
}

#[test]
fn a_port_that_a_virtual_machine_made_up_narrows_nothing() {
    let machine = from_record(&switched("0x1b36"));
    let path = machine.path(Part::Gpu(0), Part::Node(0));
    assert_eq!((path.class, path.bytes_per_second.unwrap() / 100_000_000), (PathClass::HostBridge, 288));
}

/// A driver's library that says the same always.
struct Said(Result<Vec<GpuFacts>, String>);

impl GpuLinks for Said {
    fn gpus(&self) -> Result<Vec<GpuFacts>, String> {
        self.0.clone()
    }
}

fn detect(record: &str, said: &Said) -> Machine {
    let folder = tempfile::tempdir().unwrap();
    Machine::detect(&Source::unpack(record, folder.path()).unwrap(), Some(said))
}

#[test]
fn nvlinks_are_what_the_drivers_library_says() {
    let link = |target: &str| NvLink { target: target.to_owned(), class: 0x03_0200, count: 1 };
    let facts = |own: &str, other: &str| GpuFacts {
        address: own.parse().unwrap(),
        name: Some("NVIDIA A100".to_owned()),
        sm: Some(80),
        links: vec![link(other), link(other)],
    };
    let (a, b) = ("0000:03:00.0", "0000:04:00.0");
    let machine = detect(&switched("0x8086"), &Said(Ok(vec![facts(a, b), facts(b, a), facts("0000:77:00.0", a)])));
    let path = machine.path(Part::Gpu(0), Part::Gpu(1));
    assert_eq!((path.class, path.nvlinks, path.bytes_per_second), (PathClass::NvLink, 2, Some(40_000_000_000)));
    assert_eq!(machine.gpus[0].links.len(), 1);
    let hidden = |note: &String| note.contains("0000:77:00.0 has a driver, but isn't on the PCI bus");
    assert!(machine.notes.iter().any(hidden), "{:?}", machine.notes);
}

#[test]
fn why_the_library_says_nothing_is_a_note_where_there_are_gpus() {
    let said = Said(Err("libnvidia-ml.so.1 can't be loaded".to_owned()));
    let notes = detect(&switched("0x8086"), &said).notes;
    assert!(notes.contains(&"NVLinks aren't known: libnvidia-ml.so.1 can't be loaded".to_owned()), "{notes:?}");
    let notes = detect(ONE_NODE, &said).notes;
    assert!(!notes.iter().any(|note| note.contains("NVLink")), "{notes:?}");
}

#[test]
fn what_is_hidden_is_noted() {
    let check = |record: &str, wants: &[&str]| {
        let machine = from_record(record);
        machine.check().unwrap();
        for want in wants {
            assert!(machine.notes.iter().any(|note| note.contains(want)), "{want}: {:?}", machine.notes);
        }
    };
    check("sys/nothing = 0", &["no processor is seen", "no NUMA nodes are seen", "no PCI devices are seen"]);
    check(
        "sys/devices/system/cpu/cpu{0-3}/a = 0",
        &["doesn't list the processors", "4 of 4 processors don't say", "no processor says what caches"],
    );
    check(&format!("{ONE_NODE}proc/cpuinfo = flags : hypervisor"), &["a virtual machine"]);
    check(&format!("{ONE_NODE}proc/self/cgroup = 0::/docker/0123"), &["a container"]);
    let veth = "sys/class/net/eth0/type = 1\nsys/class/net/eth0/operstate = up\nsys/class/net/eth0/speed = 10000";
    check(&format!("{ONE_NODE}{veth}"), &["no interface has a device (a container?): eth0 may lead anywhere"]);
    let two = "sys/devices/system/node/node1/a = 0\n".to_owned() + &switched("0x8086");
    check(&two, &["4 PCI devices (0000:01:00.0 first) don't say which NUMA node is near"]);
}

#[test]
fn what_a_process_may_use_is_what_affinity_and_control_groups_leave() {
    let check = |groups: &str, cores: &[u32], quota: Option<u64>, at_once: usize| {
        let machine = from_record(&format!("{ONE_NODE}proc/self/status = Cpus_allowed_list:\t1-3\n{groups}"));
        let allowance = machine.allowance.unwrap();
        assert_eq!((&allowance.cores[..], allowance.quota_thousandths), (cores, quota), "{groups}");
        assert_eq!(allowance.at_once(), at_once, "{groups}");
    };
    check("", &[1, 2, 3], None, 3);
    let root = "sys/fs/cgroup";
    check(
        &format!("proc/self/cgroup = 0::/a/b\n{root}/a/cpu.max = 150000 100000\n{root}/a/b/cpu.max = max 100000"),
        &[1, 2, 3],
        Some(1500),
        1,
    );
    let sets = format!("{root}/cpuset.cpus.effective = 0-3\n{root}/a/cpuset.cpus.effective = 2-3");
    check(&format!("proc/self/cgroup = 0::/a\n{sets}"), &[2, 3], None, 2);
    let both = format!("{root}/a/cpu.max = 250000 100000\n{root}/a/b/cpu.max = 120000 100000");
    check(&format!("proc/self/cgroup = 0::/a/b\n{both}"), &[1, 2, 3], Some(1200), 1);
    check(&format!("proc/self/cgroup = 0::/a\n{root}/a/cpuset.cpus.effective = 0-1"), &[1], None, 1);
    let first = "proc/self/cgroup = 3:cpu,cpuacct:/x\\n2:cpuset:/x\n";
    let quota =
        format!("{root}/cpu,cpuacct/x/cpu.cfs_quota_us = 250000\n{root}/cpu,cpuacct/x/cpu.cfs_period_us = 100000\n");
    check(&format!("{first}{quota}{root}/cpuset/x/cpuset.effective_cpus = 2-3"), &[2, 3], Some(2500), 2);
    check(
        &format!("{first}{root}/cpu/x/cpu.cfs_quota_us = -1\n{root}/cpu/x/cpu.cfs_period_us = 100000"),
        &[1, 2, 3],
        None,
        3,
    );
}

#[test]
fn a_host_of_two_sockets_is_found_whole() {
    let machine = machine("two-sockets");
    assert_eq!((machine.packages.len(), machine.nodes.len(), machine.cores.len()), (2, 2, 112));
    let caches = |level: u32| machine.caches.iter().filter(|cache| cache.level == level).count();
    assert_eq!((caches(1), caches(2), caches(3)), (112, 56, 2));
    assert_eq!(machine.nodes[0].memory_bytes, Some(99_223_144 << 10));
    let nics: Vec<(String, Option<u64>, Option<i32>)> = machine
        .nics
        .iter()
        .map(|nic| (nic.label(), nic.bytes_per_second, nic.node.map(|node| machine.nodes[node].id)))
        .collect();
    let edr = Some(12_500_000_000);
    let nic = |name: &str, rate, node| (name.to_owned(), rate, Some(node));
    let slow = Some(1_250_000_000);
    assert_eq!(
        nics,
        [
            nic("mlx5_0", edr, 0),
            nic("mlx5_1", slow, 0),
            nic("mlx5_2", edr, 1),
            nic("mlx5_3", slow, 1),
            nic("eno1", Some(125_000_000), 0)
        ]
    );
    assert_eq!(machine.nics[0].interface.as_deref(), Some("ib0"));
    let allowance = machine.allowance.as_ref().unwrap();
    assert_eq!((allowance.cores.len(), allowance.at_once()), (28, 12));
    assert_eq!(machine.notes, Vec::<String>::new());
}
