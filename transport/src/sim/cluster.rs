//! Clusters: hosts whose ranks share network adapters, and leaf switches whose hosts share uplinks, as routes through ports.

use super::{LinkProfile, Port, SimNetwork};

/// Hosts, and what joins them. Start from [`SimCluster::new`] and change fields; [`SimNetwork::set_cluster`] builds it.
///
/// Between ranks of a host, frames take the sender's port and the receiver's, each a rank's own; between hosts, the adapter
/// of the sender, out, its leaf's uplink and that of the receiver's leaf where these are two, and the adapter of the
/// receiver, in.
#[derive(Clone, Debug)]
pub struct SimCluster {
    /// The host of each rank; hosts are numbered from zero.
    pub hosts: Vec<usize>,
    /// How wires within a host behave.
    pub near: LinkProfile,
    /// How wires between hosts behave, beside the ports on the way.
    pub far: LinkProfile,
    /// What a rank can send to all others of its host in a second, and receive from them; `u64::MAX` is without a limit.
    pub rank_bytes_per_second: u64,
    /// How many network adapters a host has, among which its ranks are dealt out: the first ranks to the first.
    pub adapters_per_host: usize,
    /// What an adapter carries in a second, each way.
    pub adapter_bytes_per_second: u64,
    /// The leaf switch of each host, numbered from zero; empty where all are on one.
    pub leaves: Vec<usize>,
    /// What a leaf's uplink carries in a second, each way.
    pub uplink_bytes_per_second: u64,
}

/// The ports of a cluster: for each thing, that out of it and that into it.
#[derive(Clone, Debug)]
pub struct ClusterPorts {
    /// Of each rank; empty where ranks have no limit.
    pub ranks: Vec<[Port; 2]>,
    /// Of each host, those of its adapters.
    pub adapters: Vec<Vec<[Port; 2]>>,
    /// Of each leaf; empty where all hosts are on one.
    pub uplinks: Vec<[Port; 2]>,
}

impl SimCluster {
    /// Ranks on these hosts, rank `r` on host `hosts[r]`, with one adapter each and all on one switch.
    #[must_use]
    pub fn new(hosts: &[usize], near: LinkProfile, far: LinkProfile, adapter_bytes_per_second: u64) -> SimCluster {
        SimCluster {
            hosts: hosts.to_vec(),
            near,
            far,
            rank_bytes_per_second: u64::MAX,
            adapters_per_host: 1,
            adapter_bytes_per_second,
            leaves: Vec::new(),
            uplink_bytes_per_second: u64::MAX,
        }
    }

    /// How many hosts there are: one more than the highest number.
    #[must_use]
    pub fn n_hosts(&self) -> usize {
        self.hosts.iter().max().map_or(0, |last| last + 1)
    }

    /// Which of its host's adapters each rank uses.
    #[must_use]
    pub fn adapters(&self) -> Vec<usize> {
        let n_ranks_of = |host: usize| self.hosts.iter().filter(|&&other| other == host).count();
        let n_ranks: Vec<usize> = (0..self.n_hosts()).map(n_ranks_of).collect();
        let mut n_dealt = vec![0; self.n_hosts()];
        let adapter = |&host: &usize| {
            let adapter = n_dealt[host] * self.adapters_per_host / n_ranks[host];
            n_dealt[host] += 1;
            adapter
        };
        self.hosts.iter().map(adapter).collect()
    }

    fn validate(&self, n_ranks: usize) {
        assert!(self.hosts.len() == n_ranks, "a cluster of {} ranks, on a network of {n_ranks}", self.hosts.len());
        assert!(self.adapters_per_host > 0, "a host needs an adapter");
        let n_leaves = self.leaves.len();
        assert!(
            n_leaves == 0 || n_leaves == self.n_hosts(),
            "{n_leaves} hosts are on leaves, of {} there are",
            self.n_hosts()
        );
        self.near.validate();
        self.far.validate();
    }
}

impl SimNetwork {
    /// Makes the ports of a cluster and sets how wires behave, and their routes, for those that nothing was sent over yet.
    ///
    /// # Panics
    ///
    /// Where the cluster has not as many ranks as the network, hosts without adapters, leaves for some hosts only, or
    /// something that carries nothing.
    pub fn set_cluster(&self, cluster: &SimCluster) -> ClusterPorts {
        cluster.validate(self.ranks());
        let both = |name: String, rate: u64| ["out", "in"].map(|way| self.add_port(&format!("{name}, {way}"), rate));
        let (rank_rate, uplink_rate) = (cluster.rank_bytes_per_second, cluster.uplink_bytes_per_second);
        let n_limited = if rank_rate == u64::MAX { 0 } else { self.ranks() };
        let n_leaves = cluster.leaves.iter().max().map_or(0, |last| last + 1);
        let adapters_of = |host: usize| {
            let adapter = |number| both(format!("adapter {number} of host {host}"), cluster.adapter_bytes_per_second);
            (0..cluster.adapters_per_host).map(adapter).collect()
        };
        let ports = ClusterPorts {
            ranks: (0..n_limited).map(|rank| both(format!("rank {rank}"), rank_rate)).collect(),
            adapters: (0..cluster.n_hosts()).map(adapters_of).collect(),
            uplinks: (0..n_leaves).map(|leaf| both(format!("uplink of leaf {leaf}"), uplink_rate)).collect(),
        };
        let SimCluster { hosts, near, far, leaves, .. } = cluster.clone();
        let (adapters, made) = (cluster.adapters(), ports.clone());
        self.set_routes(move |from, to| {
            let (host, other) = (hosts[from], hosts[to]);
            if host == other {
                let limited = |rank: usize| made.ranks.get(rank);
                return limited(from).map(|port| port[0]).into_iter().chain(limited(to).map(|port| port[1])).collect();
            }
            let mut route = vec![made.adapters[host][adapters[from]][0]];
            if let (Some(&leaf), Some(&other)) = (leaves.get(host), leaves.get(other))
                && leaf != other
            {
                route.extend([made.uplinks[leaf][0], made.uplinks[other][1]]);
            }
            route.push(made.adapters[other][adapters[to]][1]);
            route
        });
        let hosts = cluster.hosts.clone();
        self.set_links(move |from, to| if hosts[from] == hosts[to] { near } else { far });
        ports
    }
}

impl ClusterPorts {
    /// What has left each host through its adapters, and what has come in, in bytes.
    #[must_use]
    pub fn host_bytes(&self, network: &SimNetwork) -> Vec<[u64; 2]> {
        let bytes =
            |ports: &Vec<[Port; 2]>| [0, 1].map(|way| ports.iter().map(|port| network.port_use(port[way]).bytes).sum());
        self.adapters.iter().map(bytes).collect()
    }
}
