//! What joins the parts of public machines, against what `nvidia-smi topo -m` and NCCL say of them.

use paceline_transport::machine::{Machine, Part, PathClass};

use crate::fixtures::{machine, machines};

/// The table's cells without labels and affinities, a row per line.
fn cells(machine: &Machine) -> Vec<Vec<String>> {
    let n_parts = machine.endpoints().len();
    let rows = machine.matrix();
    let rows = rows.lines().skip(1).take(n_parts);
    rows.map(|row| row.split_whitespace().skip(1).take(n_parts).map(str::to_owned).collect()).collect()
}

fn part(machine: &Machine, label: &str) -> Part {
    let all = (0..machine.cores.len()).map(Part::Core).chain((0..machine.nodes.len()).map(Part::Node));
    let mut all = all.chain(machine.endpoints());
    all.find(|part| machine.label(*part) == label).unwrap_or_else(|| panic!("no {label}"))
}

/// Checks the class of a path and its bandwidth in units of 100 MB/s; 0 for none.
fn check(name: &str, from: &str, to: &str, class: PathClass, want: u64) {
    let machine = machine(name);
    let path = machine.path(part(&machine, from), part(&machine, to));
    let rate = path.bytes_per_second.unwrap_or(0) / 100_000_000;
    assert_eq!((path.class, rate), (class, want), "{name}: {from} to {to}");
}

#[test]
fn paths_of_public_machines() {
    use PathClass::*;
    for other in 1..8 {
        // Twelve NVLinks of the third generation, eighteen of the fourth.
        check("dgx-a100", "GPU0", &format!("GPU{other}"), NvLink, 2400);
        check("hgx-h100", "GPU0", &format!("GPU{other}"), NvLink, 3708);
        check("h200-vm", "GPU0", &format!("GPU{other}"), NvLink, 3708);
    }
    // PCI Express 4.0 x16.
    check("dgx-a100", "GPU0", "mlx5_0", Switches, 288);
    check("dgx-a100", "GPU1", "mlx5_1", Switches, 288);
    check("dgx-a100", "mlx5_4", "mlx5_5:2", Switch, 288);
    check("dgx-a100", "GPU0", "mlx5_2", Sockets, 160);
    check("hgx-h100", "GPU5", "mlx5_5", Switch, 576);
    check("hgx-h100", "GPU5", "mlx5_6", HostBridge, 576);
    check("hgx-h100", "GPU5", "mlx5_0", Sockets, 220);
    check("hgx-h100", "GPU5", "node 1", HostBridge, 576);
    check("hgx-h100", "core 0", "core 112", Numa, 0);
    check("pcie-8-gpus", "GPU0", "GPU1", Switch, 144);
    check("pcie-8-gpus", "GPU0", "GPU2", Switches, 144);
    check("pcie-8-gpus", "GPU0", "GPU4", Sockets, 60);
    check("pcie-8-gpus", "GPU4", "mlx5_0", HostBridge, 144);
    check("pcie-8-gpus", "GPU6", "GPU7", Switch, 72);
    check("pcie-8-gpus", "GPU0", "mlx5_0", Sockets, 60);
    check("h200-vm", "GPU3", "mlx5_3", HostBridge, 288);
    check("azure-ndv4", "GPU0", "NIC0", Switch, 288);
    check("azure-ndv4", "GPU0", "NIC2", Sockets, 160);
    check("two-sockets", "core 0", "core 56", Cache, 0);
    check("two-sockets", "core 0", "core 27", Cache, 0);
    check("two-sockets", "core 0", "core 28", Sockets, 100);
    check("two-sockets", "core 0", "node 0", Numa, 0);
    check("two-sockets", "core 0", "mlx5_0", HostBridge, 144);
    check("two-sockets", "mlx5_0", "mlx5_1", Switch, 144);
    check("two-sockets", "mlx5_0", "mlx5_2", Sockets, 100);
    check("vm-2-cores", "core 0", "core 1", Cache, 0);
}

#[test]
fn the_table_of_a_dgx_a100_is_that_of_nvidia_smi() {
    let machine = machine("dgx-a100");
    // github.com/NVIDIA/nccl/issues/1505: what each part has to GPUs 0 to 7 and NICs 0 to 11 other than SYS.
    let want = |from: usize, to: usize| match (from.min(to), from.max(to)) {
        (from, to) if from == to => "X",
        (_, ..=7) => "NV12",
        (0 | 1, 8 | 9) | (2 | 3, 10 | 11) | (4 | 5, 14 | 15) | (6 | 7, 16 | 17) => "PXB",
        (8, 9) | (10, 11) | (14, 15) | (16, 17) => "PXB",
        (12, 13) | (18, 19) => "PIX",
        _ => "SYS",
    };
    let names: Vec<String> = machine.endpoints().iter().map(|part| machine.label(*part)).collect();
    let order = |at: usize| {
        let name = if at < 8 { format!("GPU{at}") } else { format!("mlx5_{}", at - 8) };
        names.iter().position(|of| *of == name || of.starts_with(&format!("{name}:"))).unwrap()
    };
    let cells = cells(&machine);
    for from in 0..20 {
        for to in 0..20 {
            assert_eq!(cells[order(from)][order(to)], want(from, to), "{from} to {to}");
        }
    }
}

#[test]
fn the_table_of_a_box_without_nvlink_is_that_of_nvidia_smi() {
    // github.com/lattice/quda/issues/669.
    let want = "\
        X PIX PXB PXB SYS SYS SYS SYS SYS
        PIX X PXB PXB SYS SYS SYS SYS SYS
        PXB PXB X PIX SYS SYS SYS SYS SYS
        PXB PXB PIX X SYS SYS SYS SYS SYS
        SYS SYS SYS SYS X PIX PXB PXB PHB
        SYS SYS SYS SYS PIX X PXB PXB PHB
        SYS SYS SYS SYS PXB PXB X PIX PHB
        SYS SYS SYS SYS PXB PXB PIX X PHB
        SYS SYS SYS SYS PHB PHB PHB PHB X";
    let want: Vec<Vec<&str>> = want.lines().map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(cells(&machine("pcie-8-gpus")), want);
}

#[test]
fn the_nearest_ports_are_told() {
    let check = |name: &str, from: &str, want: &[&str]| {
        let machine = machine(name);
        let nearest = machine.nearest_nics(part(&machine, from));
        let labels: Vec<String> = nearest.iter().map(|nic| machine.nics[*nic].label()).collect();
        assert_eq!(labels, want, "{name}: {from}");
    };
    check("dgx-a100", "GPU0", &["mlx5_0", "mlx5_1"]);
    check("hgx-h100", "GPU5", &["mlx5_5"]);
    check("pcie-8-gpus", "GPU0", &["mlx5_0"]);
    check("azure-ndv4", "GPU7", &["NIC6", "NIC7"]);
    // The second port of each card is down.
    check("two-sockets", "core 0", &["mlx5_0"]);
    check("two-sockets", "core 28", &["mlx5_2"]);
}

#[test]
fn ports_that_are_down_count_if_all_are() {
    let mut machine = machine("dgx-a100");
    let nic = |machine: &Machine, name: &str| machine.nics.iter().position(|nic| nic.label() == name).unwrap();
    let (first, second) = (nic(&machine, "mlx5_0"), nic(&machine, "mlx5_1"));
    machine.nics[first].state = Some("DOWN".to_owned());
    assert_eq!(machine.nearest_nics(Part::Gpu(0)), [second]);
    machine.nics.iter_mut().for_each(|nic| nic.state = Some("DOWN".to_owned()));
    assert_eq!(machine.nearest_nics(Part::Gpu(0)), [first, second]);
}

#[test]
fn beyond_the_ports_counts_what_the_nearest_carries() {
    let check = |name: &str, from: &str, want: u64| {
        let machine = machine(name);
        let path = machine.path(part(&machine, from), Part::Network);
        assert_eq!((path.class, path.bytes_per_second), (PathClass::Network, Some(want)), "{name}: {from}");
    };
    check("dgx-a100", "GPU0", 25_000_000_000);
    check("hgx-h100", "GPU5", 50_000_000_000);
    // The link between sockets is narrower than the port.
    check("pcie-8-gpus", "GPU0", 6_000_000_000);
    check("pcie-8-gpus", "GPU4", 12_500_000_000);
}

#[test]
fn a_way_is_the_same_from_both_ends() {
    for (name, machine) in machines() {
        let mut parts = machine.endpoints();
        parts.extend((0..machine.cores.len()).step_by(7).map(Part::Core));
        parts.extend((0..machine.nodes.len()).map(Part::Node));
        parts.extend((0..machine.devices.len()).map(Part::Device));
        parts.push(Part::Network);
        for from in &parts {
            assert_eq!(machine.path(*from, *from).class, PathClass::Same);
            for to in &parts {
                assert_eq!(machine.path(*from, *to), machine.path(*to, *from), "{name}: {from:?} and {to:?}");
            }
        }
    }
}
