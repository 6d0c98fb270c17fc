//! A simulated cluster with the real engine on it, and one call after the other of all its ranks.

use std::cell::RefCell;
use std::time::Duration;

use paceline_comm::algorithm::Row;
use paceline_comm::topology::{Layout, Spot};
use paceline_comm::{CallOptions, Communicator, Element, Result, Work};
use paceline_transport::Time;
use paceline_transport::sim::{ClusterPorts, LinkProfile, RankStep, SimCluster, SimNetwork, SimOptions, run};

/// A cluster, with what has passed its hosts' adapters before the next call.
pub struct Cluster {
    pub network: SimNetwork,
    pub ports: ClusterPorts,
    pub layout: Layout,
    comms: Vec<Communicator>,
}

/// What a call came to.
pub struct Played<R> {
    /// How long the last rank took, in seconds.
    pub seconds: f64,
    /// Of each host, bytes that left it and bytes that entered it meanwhile.
    pub host_bytes: Vec<[u64; 2]>,
    /// What each rank ended with.
    pub results: Vec<R>,
}

/// What near and far wires are like.
pub struct Speeds {
    pub near_latency: Duration,
    pub far_latency: Duration,
    /// What a rank sends and receives within its host.
    pub rank_bytes_per_second: u64,
    /// What an adapter does.
    pub adapter_bytes_per_second: u64,
    pub adapters_per_host: usize,
}

impl Default for Speeds {
    fn default() -> Speeds {
        Speeds {
            near_latency: Duration::from_micros(1),
            far_latency: Duration::from_micros(5),
            rank_bytes_per_second: 40_000_000_000,
            adapter_bytes_per_second: 10_000_000_000,
            adapters_per_host: 1,
        }
    }
}

impl Cluster {
    /// Rank `r` is on host `hosts[r]`.
    pub fn new(hosts: &[usize], speeds: &Speeds) -> Cluster {
        let mut options = SimOptions::new(hosts.len(), paceline_tests::seed());
        options.trace_events = 64;
        let network = SimNetwork::new(options);
        let wire = |latency| LinkProfile { latency, ..LinkProfile::instant() };
        let (near, far) = (wire(speeds.near_latency), wire(speeds.far_latency));
        let cluster = SimCluster {
            rank_bytes_per_second: speeds.rank_bytes_per_second,
            adapters_per_host: speeds.adapters_per_host,
            ..SimCluster::new(hosts, near, far, speeds.adapter_bytes_per_second)
        };
        let ports = network.set_cluster(&cluster);
        let spot = |(&host, adapter)| Spot { host: host as u32, domain: 0, adapter: adapter as u16 };
        let spots: Vec<Spot> = hosts.iter().zip(cluster.adapters()).map(spot).collect();
        let comms = Communicator::simulated_at(&network, &spots, Duration::from_secs(100)).expect("simulated ranks");
        Cluster { network, ports, layout: Layout::of(&spots), comms }
    }

    pub fn size(&self) -> usize {
        self.comms.len()
    }

    pub fn comms(&self) -> &[Communicator] {
        &self.comms
    }

    /// The communicators, for calls by one row.
    pub fn with(&self, row: &Row) -> Vec<Communicator> {
        let options = || CallOptions { timeout: None, algorithm: Some(row.name.into()) };
        self.comms.iter().map(|comm| comm.with(options())).collect()
    }

    /// One call of all ranks, started at the same moment; `start` is given each rank's number.
    pub fn call<T: Element>(&self, start: impl Fn(usize) -> Result<Work<T>>) -> Played<Result<Vec<T>>> {
        let before = self.ports.host_bytes(&self.network);
        let began = self.network.now();
        let ended = RefCell::new(began);
        let works: Vec<_> = (0..self.size()).map(start).collect();
        let mut steps: Vec<_> = self
            .comms
            .iter()
            .zip(&works)
            .map(|(comm, work)| {
                let ended = &ended;
                move |now: Time| {
                    let step = comm.step();
                    if work.as_ref().is_ok_and(|work| !work.test()) {
                        return step;
                    }
                    let mut last = ended.borrow_mut();
                    *last = (*last).max(now);
                    RankStep::Done
                }
            })
            .collect();
        run(&self.network, &mut steps).unwrap_or_else(|error| panic!("{error}"));
        drop(steps);
        let results = works.into_iter().map(|work| work.and_then(Work::wait)).collect();
        let after = self.ports.host_bytes(&self.network);
        let host_bytes = after.iter().zip(before).map(|(after, before)| [0, 1].map(|way| after[way] - before[way]));
        let host_bytes = host_bytes.collect();
        Played { seconds: ended.into_inner().since(began).as_secs_f64(), host_bytes, results }
    }
}
