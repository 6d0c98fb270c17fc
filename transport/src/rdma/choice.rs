//! Which ports a rank uses: active ones with an address that the user allows, the nearest to its processor first.

#![forbid(unsafe_code)]

use super::errors::RdmaError;
use super::facts::PortFacts;
use super::gid::{self, Offered};
use super::options::{PORTS_MAX, RdmaOptions};
use crate::rendezvous::Family;

/// A port that can be used, as far as the kernel's description goes.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Candidate {
    pub(super) facts: PortFacts,
    pub(super) gids: Vec<Offered>,
}

/// The ports to use.
#[derive(Debug)]
pub(super) struct Choice {
    /// Those to use, best first.
    pub(super) best: Vec<Candidate>,
    /// What is wrong with those that the user allows and that can't be used.
    pub(super) unusable: Vec<RdmaError>,
}

/// The ports to use, or why there are none. A port of another speed, or further away, than the best is not
/// used beside it, unless the user says how many there should be.
pub(super) fn choose(
    ports: Vec<PortFacts>,
    options: &RdmaOptions,
    family: Family,
    node: Option<u32>,
) -> Result<Choice, RdmaError> {
    if ports.is_empty() {
        return Err(RdmaError::NoDevice);
    }
    let (wanted, others): (Vec<PortFacts>, Vec<PortFacts>) =
        ports.into_iter().partition(|port| options.devices.matches(&port.device));
    if wanted.is_empty() {
        let filter = options.devices.text().to_owned();
        return Err(RdmaError::Filtered { filter, present: others.into_iter().map(|port| port.device).collect() });
    }
    let (mut usable, mut unusable) = (Vec::new(), Vec::new());
    for port in wanted {
        match usable_port(port, options, family) {
            Ok(candidate) => usable.push(candidate),
            Err(problem) => unusable.push(problem),
        }
    }
    if usable.is_empty() {
        return Err(RdmaError::of_several(unusable));
    }
    let is_near = |candidate: &Candidate| node.is_some() && candidate.facts.node == node;
    usable.sort_by(|a, b| {
        let key = |Candidate { facts, .. }: &Candidate| (!facts.is_software, facts.rate_gbps);
        let key = |candidate: &Candidate| (is_near(candidate), key(candidate));
        key(b).partial_cmp(&key(a)).expect("rates are numbers")
    });
    let best = usable[0].clone();
    match options.ports_max {
        Some(most) => usable.truncate(most),
        None => {
            usable.retain(|other| {
                let alike = other.facts.rate_gbps == best.facts.rate_gbps && other.facts.layer == best.facts.layer;
                let kind = |candidate: &Candidate| (is_near(candidate), candidate.facts.is_software);
                alike && kind(other) == kind(&best)
            });
            usable.truncate(PORTS_MAX);
        }
    }
    Ok(Choice { best: usable, unusable })
}

/// Whether a port can be used, and with which addresses.
pub(super) fn usable_port(port: PortFacts, options: &RdmaOptions, family: Family) -> Result<Candidate, RdmaError> {
    if !port.is_active() {
        return Err(RdmaError::PortDown {
            port: port.name(),
            state: port.state.clone(),
            physical: port.physical_state.clone(),
            interfaces: port.interfaces().join(", "),
        });
    }
    match gid::offered(&port, family, options.gid_index) {
        Ok(gids) => Ok(Candidate { facts: port, gids }),
        Err(why) => Err(RdmaError::NoGid { port: port.name(), why }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::tests::Tree;
    use super::super::facts::{my_node, ports};
    use super::*;

    const V2: [(&str, &str, &str); 1] = [("::ffff:10.0.0.1", "RoCE v2", "eth0")];

    fn names(tree: &Tree, options: &RdmaOptions, node: Option<u32>) -> Result<Vec<String>, RdmaError> {
        let chosen = choose(ports(tree.0.path()), options, Family::Any, node)?;
        Ok(chosen.best.into_iter().map(|candidate| candidate.facts.device).collect())
    }

    /// Two sockets with two ports each, one of which is down, and a slower one.
    fn host() -> Tree {
        let tree = Tree::new();
        tree.port("mlx5_0", "0", "Ethernet", "4: ACTIVE", &V2);
        tree.port("mlx5_1", "0", "Ethernet", "1: DOWN", &V2);
        tree.port("mlx5_2", "1", "Ethernet", "4: ACTIVE", &V2);
        tree.port("mlx5_3", "1", "Ethernet", "4: ACTIVE", &V2);
        tree.port("slow_4", "1", "Ethernet", "4: ACTIVE", &V2);
        tree.write("class/infiniband/slow_4/ports/1/rate", "25 Gb/sec (1X EDR)");
        tree
    }

    #[test]
    fn the_nearest_ports_are_used_together() {
        let usual = RdmaOptions::default();
        assert_eq!(names(&host(), &usual, Some(0)).unwrap(), ["mlx5_0"]);
        assert_eq!(names(&host(), &usual, Some(1)).unwrap(), ["mlx5_2", "mlx5_3"]);
        assert_eq!(names(&host(), &usual, None).unwrap(), ["mlx5_0", "mlx5_2", "mlx5_3"]);
        let three = RdmaOptions { ports_max: Some(3), ..usual.clone() };
        assert_eq!(names(&host(), &three, Some(1)).unwrap(), ["mlx5_2", "mlx5_3", "slow_4"]);
        let named = RdmaOptions { devices: "=slow_4".parse().unwrap(), ..usual };
        assert_eq!(names(&host(), &named, Some(0)).unwrap(), ["slow_4"]);
    }

    #[test]
    fn a_port_that_is_down_is_left_out_and_named() {
        let Choice { best, unusable } =
            choose(ports(host().0.path()), &RdmaOptions::default(), Family::Any, None).unwrap();
        assert!(best.iter().all(|candidate| candidate.facts.device != "mlx5_1"), "{best:?}");
        assert!(matches!(&unusable[..], [RdmaError::PortDown { port, .. }] if port == "mlx5_1 port 1"), "{unusable:?}");
    }

    #[test]
    fn a_rank_knows_what_it_is_near_to() {
        let tree = Tree::new();
        for cpu in 0..4096 {
            if cpu == rustix::thread::sched_getcpu() {
                tree.write(&format!("devices/system/cpu/cpu{cpu}/node3/x"), "");
            }
        }
        // The thread may have moved meanwhile.
        assert!(matches!(my_node(tree.0.path()), Some(3) | None));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let usual = RdmaOptions::default();
        assert!(matches!(names(&Tree::new(), &usual, None), Err(RdmaError::NoDevice)));
        let named = RdmaOptions { devices: "=other".parse().unwrap(), ..usual.clone() };
        let error = names(&host(), &named, None).unwrap_err().to_string();
        assert!(error.contains("=other") && error.contains("mlx5_0"), "{error}");
        let tree = Tree::new();
        tree.port("mlx5_0", "0", "Ethernet", "1: DOWN", &V2);
        let error = names(&tree, &usual, None).unwrap_err().to_string();
        assert!(error.contains("mlx5_0 port 1") && error.contains("DOWN") && error.contains("eth0"), "{error}");
        let tree = Tree::new();
        tree.port("rxe0", "0", "Ethernet", "4: ACTIVE", &[]);
        let error = names(&tree, &usual, None).unwrap_err().to_string();
        assert!(error.contains("GID"), "{error}");
    }
}
