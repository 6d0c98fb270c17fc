//! Where in a machine a process is, as far as it is anywhere in particular.

use std::sync::OnceLock;

use super::{Machine, NicKind, Part, Source};

/// Where a rank is in its machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Whereabouts {
    /// The NUMA node, by its place in the list, that has all processors it may use; `None` if several have, or there is one only.
    pub node: Option<usize>,
    /// The port of an RDMA device it should use, by its place in the list; `None` if there is none.
    pub port: Option<usize>,
}

impl Machine {
    /// This machine, as it was when first asked for.
    pub fn here() -> &'static Machine {
        static HERE: OnceLock<Machine> = OnceLock::new();
        HERE.get_or_init(|| Machine::detect(&Source::here(), None))
    }

    /// Where the process is that the machine's allowance is of. Of several ports that are equally near, ranks take one after the
    /// other, by their `number` among the host's. Ports without RDMA don't count: which of them TCP uses is not a matter of where
    /// a rank is.
    #[must_use]
    pub fn whereabouts(&self, number: usize) -> Whereabouts {
        let cores = self.allowance.iter().flat_map(|allowance| &allowance.cores);
        let places: Vec<usize> = cores.filter_map(|core| self.core_at(*core)).collect();
        let mut nodes: Vec<Option<usize>> = places.iter().map(|core| self.cores[*core].node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let node = match nodes[..] {
            [node] if self.nodes.len() > 1 => node,
            _ => None,
        };
        let has_rdma = |nic: &usize| matches!(self.nics[*nic].kind, NicKind::InfiniBand | NicKind::Roce);
        let ports = || (0..self.nics.len()).filter(has_rdma).filter(|nic| self.nics[*nic].is_up());
        let class = |nic: usize, core: usize| self.path(Part::Core(core), Part::Nic(nic)).class;
        let near: Vec<usize> = match (places.first(), node) {
            (None, _) => Vec::new(),
            // All nodes are alike to a process that may run on all.
            (Some(_), None) => ports().collect(),
            (Some(&core), Some(_)) => {
                let best = ports().map(|nic| class(nic, core)).min();
                ports().filter(|nic| Some(class(*nic, core)) == best).collect()
            }
        };
        Whereabouts { node, port: (!near.is_empty()).then(|| near[number % near.len()]) }
    }
}
