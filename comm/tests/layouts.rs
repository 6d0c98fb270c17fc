//! Layouts of large clusters: what is computed from where ranks are is the same everywhere, and soon there.

use std::time::{Duration, Instant};

use paceline_comm::algorithm::{ROWS, row};
use paceline_comm::collective::Collective;
use paceline_comm::topology::{Crossing, Layout, Spot};
use paceline_transport::machine::{Machine, Part, PathClass};
use proptest::prelude::*;

/// `hosts` hosts of `ranks` ranks each.
fn cluster(hosts: u32, ranks: u16) -> Layout {
    let spot = |host| (0..ranks).map(move |adapter| Spot { host, domain: 0, adapter });
    Layout::of(&(0..hosts).flat_map(spot).collect::<Vec<_>>())
}

#[test]
fn a_thousand_hosts_are_soon_laid_out() {
    let start = Instant::now();
    let layout = cluster(1024, 8);
    let rings = layout.rings();
    let laid_out = start.elapsed();
    assert_eq!((layout.n_hosts(), layout.adapters(), rings.len(), rings[0].len()), (1024, 8, 8, 1024));
    let mut slowest = (Duration::ZERO, "");
    for row in ROWS {
        let began = Instant::now();
        let _ = layout.crossing(row);
        slowest = slowest.max((began.elapsed(), row.name));
        let _ = layout.program(row, 5000, 3);
    }
    let all = start.elapsed();
    println!("8192 ranks: laid out in {laid_out:?}, every row in {all:?}, the slowest {slowest:?}");
    assert!(all < Duration::from_secs(20), "{all:?}, {slowest:?}");
    let Crossing { host, .. } = layout.crossing(row(Collective::AllReduce, "two_level").expect("a row"));
    assert!((host - 2.0 * 1023.0 / 1024.0).abs() < 1e-9, "{host}");
}

/// Rings and trees reach each host once, and the order of ranks goes from host to host no more often than it has to.
fn check(spots: &[Spot]) {
    let layout = Layout::of(spots);
    let n = spots.len();
    let hosts = layout.hosts();
    let is_permutation = |ranks: &[u32], of: usize| {
        let mut sorted = ranks.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        sorted.len() == of && ranks.len() == of
    };
    assert!(is_permutation(layout.order(), n) && is_permutation(&hosts.concat(), n));
    let host = |rank: u32| spots[rank as usize].host;
    let changes =
        |ring: &[u32]| (0..ring.len()).filter(|at| host(ring[*at]) != host(ring[(at + 1) % ring.len()])).count();
    let least = if hosts.len() > 1 { hosts.len() } else { 0 };
    assert_eq!(changes(layout.order()), least, "{spots:?}");
    // Within a host each domain is left once, too.
    for ranks in &hosts {
        let domain = |at: usize| spots[ranks[at % ranks.len()] as usize].domain;
        let domains: std::collections::BTreeSet<u16> = (0..ranks.len()).map(domain).collect();
        let changes = (0..ranks.len() - 1).filter(|at| domain(*at) != domain(at + 1)).count();
        assert_eq!(changes, domains.len() - 1, "{spots:?}");
    }
    let rings = layout.rings();
    assert_eq!(rings.len(), hosts.iter().map(Vec::len).max().expect("a host"));
    for ring in &rings {
        assert!(is_permutation(ring, hosts.len()) && changes(ring) == least, "{ring:?} of {spots:?}");
    }
    let mut standing = rings.concat();
    standing.sort_unstable();
    standing.dedup();
    assert_eq!(standing.len(), n, "all ranks of every host stand for a lane: {spots:?}");
    for tree in layout.trees().iter().filter(|_| hosts.len() > 1) {
        let mut reached: Vec<u32> = tree.values().flatten().map(|rank| host(*rank)).collect();
        reached.sort_unstable();
        let edges = reached.len();
        reached.dedup();
        assert_eq!((edges, reached.len()), (hosts.len() - 1, hosts.len() - 1), "{tree:?} of {spots:?}");
        assert!(tree.iter().all(|(parent, children)| children.iter().all(|child| host(*child) != host(*parent))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_layouts_cross_no_more_than_they_have_to(
        spots in prop::collection::vec((0u32..9, 0u16..3, 0u16..4), 1..60),
    ) {
        let spots: Vec<Spot> =
            spots.into_iter().map(|(host, domain, adapter)| Spot { host, domain, adapter }).collect();
        check(&spots);
    }
}

const MACHINES: [(&str, &str); 5] = [
    ("dgx-a100", include_str!("../../transport/tests/topology/fixtures/dgx-a100.xml")),
    ("hgx-h100", include_str!("../../transport/tests/topology/fixtures/hgx-h100.xml")),
    ("pcie-8-gpus", include_str!("../../transport/tests/topology/fixtures/pcie-8-gpus.xml")),
    ("h200-vm", include_str!("../../transport/tests/topology/fixtures/h200-vm.xml")),
    ("azure-ndv4", include_str!("../../transport/tests/topology/fixtures/azure-ndv4.xml")),
];

/// A rank for each GPU, in a domain with those that it reaches by NVLink or else by its own socket, at the port next to it.
fn spots_of(machine: &Machine, host: u32) -> Vec<Spot> {
    let near = |a: usize, b: usize| machine.path(Part::Gpu(a), Part::Gpu(b)).class < PathClass::Sockets;
    let spot = |gpu: usize| {
        let domain = (0..=gpu).find(|other| near(*other, gpu)).expect("itself") as u16;
        let ports = machine.nearest_nics(Part::Gpu(gpu));
        let adapter = if ports.is_empty() { 0 } else { ports[gpu % ports.len()] as u16 };
        Spot { host, domain, adapter }
    };
    (0..machine.gpus.len()).map(spot).collect()
}

#[test]
fn clusters_of_public_machines_are_laid_out() {
    for (name, text) in MACHINES {
        let machine = Machine::from_xml(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        for hosts in [1, 2, 5] {
            let spots: Vec<Spot> = (0..hosts).flat_map(|host| spots_of(&machine, host)).collect();
            check(&spots);
            let mut dealt = spots.clone();
            dealt.sort_by_key(|spot| (spot.adapter, spot.domain, spot.host));
            check(&dealt);
            let layout = Layout::of(&spots);
            println!("{hosts} x {name}: {} levels, {} adapters", layout.groups().levels().len(), layout.adapters());
        }
    }
    let dgx = Machine::from_xml(MACHINES[1].1).expect("it is sound");
    let layout = Layout::of(&(0..4).flat_map(|host| spots_of(&dgx, host)).collect::<Vec<_>>());
    assert_eq!((layout.adapters(), layout.rings().len()), (8, 8), "a port beside each GPU");
}
