//! Machines as bytes for other ranks.

use paceline_transport::machine::{Allowance, Machine, Whereabouts};
use proptest::prelude::*;

use crate::fixtures::{machine, machines};

#[test]
fn a_machine_arrives_as_it_was_sent() {
    for (name, machine) in machines() {
        let bytes = machine.to_bytes();
        assert_eq!(Machine::from_bytes(&bytes).as_ref(), Ok(&machine), "{name}");
        let text = serde_json::to_string(&machine).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&text).unwrap(), machine, "{name}");
    }
}

#[test]
fn the_digest_tells_machines_apart_but_not_the_processes_on_one() {
    let all: std::collections::HashSet<[u8; 32]> = machines().iter().map(|(_, machine)| machine.digest()).collect();
    assert_eq!(all.len(), machines().len());
    let one = machine("two-sockets");
    let allowance = Some(Allowance { cores: vec![3], quota_thousandths: None });
    let other = Machine { allowance, notes: vec!["a note".to_owned()], ..one.clone() };
    assert_eq!(one.digest(), other.digest());
    let mut slower = one.clone();
    slower.devices[1].link = None;
    assert_ne!(one.digest(), slower.digest());
}

#[test]
fn what_refers_to_nothing_is_refused() {
    let check = |change: fn(&mut Machine), want: &str| {
        let mut machine = machine("dgx-a100");
        change(&mut machine);
        let error = Machine::from_bytes(&machine.to_bytes()).unwrap_err().to_string();
        assert!(error.contains(want), "{want}: {error}");
    };
    check(|machine| machine.gpus[3].device = 999, "GPU 3 refers to number 999 of ");
    check(|machine| machine.devices[0].parent = Some(0), "the parent of 0000:01:00.0 refers to number 0 of 0");
    check(|machine| machine.devices[0].node = Some(6), "0000:01:00.0 refers to number 6 of 6");
    check(|machine| machine.nics[0].node = Some(6), "network port 0 refers to number 6 of 6");
    check(|machine| machine.cores.swap(0, 1), "the processors of the list of cores are out of order");
    check(|machine| machine.nodes[0].cores.push(u32::MAX), "the processors of NUMA node 0 are out of order or range");
    check(|machine| machine.cores[0].node = Some(6), "core 0 refers to number 6 of 6");
}

#[test]
fn a_process_is_where_its_processors_are() {
    let mut machine = machine("two-sockets");
    let of = |machine: &Machine, node: usize| machine.nodes[node].cores.clone();
    let (first, second) = (of(&machine, 0), of(&machine, 1));
    let port = |machine: &Machine, at: usize| machine.nics[at].node;
    for (node, cores) in [(0, &first), (1, &second)] {
        machine.allowance = Some(Allowance { cores: cores.clone(), quota_thousandths: None });
        let ranks = [0, 1].map(|number| machine.whereabouts(number));
        assert!(ranks.iter().all(|rank| rank.node == Some(node)), "{ranks:?}");
        assert!(ranks.iter().all(|rank| port(&machine, rank.port.unwrap()) == Some(node)), "{ranks:?}");
    }
    let mut all = [first, second].concat();
    all.sort_unstable();
    machine.allowance = Some(Allowance { cores: all, quota_thousandths: None });
    let ranks: Vec<_> = (0..machine.nics.len()).map(|number| machine.whereabouts(number)).collect();
    assert!(ranks.iter().all(|rank| rank.node.is_none()), "{ranks:?}");
    let ports: std::collections::BTreeSet<_> = ranks.iter().map(|rank| rank.port).collect();
    assert!(ports.len() > 1 && !ports.contains(&None), "ranks take ports by turns: {ranks:?}");
    machine.allowance = None;
    assert_eq!(machine.whereabouts(0), Whereabouts::default());
}

#[test]
fn bytes_of_something_else_are_refused() {
    let bytes = machine("vm-2-cores").to_bytes();
    let check = |bytes: &[u8], want: &str| {
        let error = Machine::from_bytes(bytes).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    };
    check(&[], "they are none");
    check(&[&[9], &bytes[1..]].concat(), "their form is 9, where 1 is known");
    check(&[&bytes[..], &[0]].concat(), "1 of them are left over");
    for len in 1..bytes.len() {
        assert!(Machine::from_bytes(&bytes[..len]).is_err(), "{len} bytes");
    }
}

proptest! {
    #[test]
    fn no_bytes_are_too_much(at in 0.0..1.0, put in prop::collection::vec(any::<u8>(), 1..8)) {
        let mut bytes = machine("pcie-8-gpus").to_bytes();
        let at = (bytes.len() as f64 * at) as usize;
        let end = (at + put.len()).min(bytes.len());
        bytes.splice(at..end, put);
        if let Ok(machine) = Machine::from_bytes(&bytes) {
            let _ = machine.matrix();
        }
    }
}
