//! The call itself: the engine and its messages, on a simulated network with a virtual clock.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use paceline_comm::topology::{Cluster, Fabric, Spot, Trouble};
use paceline_comm::{CallOptions, Collective, Communicator, Error, ReduceOp, Work};
use paceline_transport::Time;
use paceline_transport::sim::{ClusterPorts, LinkProfile, RankStep, SimCluster, SimNetwork, SimOptions, run};
use serde::Serialize;

/// The most ranks, and bytes of all their messages together: all of them are in this process.
pub(super) const RANKS_MAX: u32 = 1024;
const BYTES_MAX: u64 = 4 << 30;
/// What each rank's call may take, on the network's clock.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What is asked for beyond a cluster and its troubles.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) collective: Collective,
    pub(super) bytes: u64,
    pub(super) row: Option<String>,
    pub(super) dead_rank: Option<u32>,
    pub(super) seed: u64,
}

/// What came of a call.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Played {
    /// The whole message.
    pub bytes: u64,
    /// The row that was chosen, or asked for.
    pub row: String,
    /// When the last rank's call had ended, in seconds on the network's clock.
    pub seconds: f64,
    /// What the ranks' calls ended with, where not well, and how many did so.
    pub errors: BTreeMap<String, usize>,
    /// What left the busiest host, in bytes.
    pub leaves_host: u64,
    /// How long this process took, in seconds.
    pub took_s: f64,
}

/// Makes the call.
///
/// # Errors
///
/// The cluster is too large, or can't be simulated; or the row doesn't exist.
pub(super) fn play(cluster: &Cluster, trouble: &Trouble, question: &Question) -> Result<Played, String> {
    let began = Instant::now();
    let n = cluster.size();
    if n > RANKS_MAX {
        return Err(format!(
            "{n} ranks are more than the {RANKS_MAX} that the engine is run for; without --engine they are priced"
        ));
    }
    let each = question.bytes.max(1);
    if each.saturating_mul(2 * u64::from(n)) > BYTES_MAX {
        let most = BYTES_MAX / 2 / u64::from(n);
        return Err(format!(
            "{n} ranks have {most} bytes each in this process, at most; without --engine messages are only priced"
        ));
    }
    if question.dead_rank.is_some_and(|rank| rank >= n) {
        return Err(format!("there is no rank {} among {n}", question.dead_rank.unwrap_or(0)));
    }
    let (network, ports, spots) = network(cluster, question.seed)?;
    inject(&network, &ports, trouble, question.dead_rank);
    let comms = Communicator::simulated_at(&network, &spots, TIMEOUT).map_err(|error| error.to_string())?;
    let options = CallOptions { timeout: None, algorithm: question.row.clone() };
    let comms: Vec<Communicator> = comms.iter().map(|comm| comm.with(options.clone())).collect();
    let row = comms[0].explain(question.collective, question.bytes as usize).map_err(|error| error.to_string())?.chosen;
    let works: Vec<_> = comms.iter().map(|comm| start(comm, question)).collect();

    let (ended, dead) = (RefCell::new(Time(0)), question.dead_rank);
    let mut steps: Vec<_> = comms
        .iter()
        .zip(&works)
        .enumerate()
        .map(|(rank, (comm, work))| {
            let ended = &ended;
            move |now: Time| {
                let step = comm.step();
                if work.as_ref().is_ok_and(|work| !work.test()) {
                    return step;
                }
                if dead != Some(rank as u32) {
                    let mut last = ended.borrow_mut();
                    *last = (*last).max(now);
                }
                RankStep::Done
            }
        })
        .collect();
    run(&network, &mut steps).map_err(|error| error.to_string())?;
    drop(steps);
    let mut errors = BTreeMap::new();
    for (rank, work) in works.into_iter().enumerate() {
        // Who is dead says nothing.
        if dead == Some(rank as u32) {
            continue;
        }
        if let Err(error) = work.and_then(Work::wait) {
            *errors.entry(error.to_string()).or_insert(0) += 1;
        }
    }
    let leaves_host = ports.host_bytes(&network).iter().map(|[out, _]| *out).max().unwrap_or(0);
    let seconds = ended.into_inner().since(Time(0)).as_secs_f64();
    let took_s = began.elapsed().as_secs_f64();
    Ok(Played { bytes: question.bytes, row: row.to_owned(), seconds, errors, leaves_host, took_s })
}

fn network(cluster: &Cluster, seed: u64) -> Result<(SimNetwork, ClusterPorts, Vec<Spot>), String> {
    let n = cluster.size() as usize;
    let mut options = SimOptions::new(n, seed);
    options.trace_events = 32;
    options.frame_bytes = 256 << 10;
    let network = SimNetwork::new(options);
    let wire = |wire: paceline_comm::topology::Wire| LinkProfile {
        latency: Duration::from_secs_f64(wire.latency_s + wire.message_s),
        ..LinkProfile::instant()
    };
    let hosts: Vec<usize> = (0..n).map(|rank| rank / cluster.ranks_per_host as usize).collect();
    let plain = SimCluster::new(&hosts, wire(cluster.near), wire(cluster.far), cluster.far.bytes_per_s as u64);
    let adapters = cluster.adapters_per_host as usize;
    let made =
        SimCluster { rank_bytes_per_second: cluster.near.bytes_per_s as u64, adapters_per_host: adapters, ..plain };
    let made = match cluster.fabric {
        Fabric::Full => made,
        Fabric::FatTree { hosts_per_leaf, oversubscription } => {
            let leaves = (0..cluster.hosts as usize).map(|host| host / hosts_per_leaf as usize).collect();
            let rate = f64::from(hosts_per_leaf) * adapters as f64 * cluster.far.bytes_per_s / oversubscription;
            SimCluster { leaves, uplink_bytes_per_second: rate as u64, ..made }
        }
        Fabric::Rails { .. } => return Err("rails are only priced: leave out --engine".to_owned()),
    };
    let ports = network.set_cluster(&made);
    let spot = |(host, adapter): (&usize, usize)| Spot { host: *host as u32, domain: 0, adapter: adapter as u16 };
    let spots = hosts.iter().zip(made.adapters()).map(spot).collect();
    Ok((network, ports, spots))
}

/// Troubles are those of the first host, and of the last rank.
fn inject(network: &SimNetwork, ports: &ClusterPorts, trouble: &Trouble, dead_rank: Option<u32>) {
    let (from, until) = (Time(0), Time::NEVER);
    let slow = |ports: &[paceline_transport::sim::Port; 2], times: f64| {
        for port in ports.iter().filter(|_| times > 1.0) {
            network.slow_port(*port, from, until, times.round() as u32);
        }
    };
    if let Some(adapters) = ports.adapters.first() {
        slow(&adapters[0], trouble.slow_adapter);
        for port in adapters.iter().rev().take(trouble.dead_adapters as usize).flatten() {
            network.close_port(*port, from, until);
        }
    }
    if let Some(rank) = ports.ranks.first() {
        slow(rank, trouble.slow_near);
    }
    if trouble.straggler_s > 0.0 {
        network.stop(network.ranks() - 1, from, Time(0).after(Duration::from_secs_f64(trouble.straggler_s)));
    }
    if let Some(rank) = dead_rank {
        // In the middle of the call, as a rule.
        network.kill(rank as usize, Time(0).after(Duration::from_micros(20)));
    }
}

fn start(comm: &Communicator, question: &Question) -> Result<Work<u8>, Error> {
    let n = comm.size();
    let bytes = question.bytes as usize;
    let block = bytes / n;
    let (whole, own) = (|| vec![1u8; block * n], || vec![1u8; block]);
    match question.collective {
        Collective::AllReduce => comm.start_all_reduce(vec![1u8; bytes], ReduceOp::Max),
        Collective::Reduce => comm.start_reduce(vec![1u8; bytes], ReduceOp::Max, 0),
        Collective::Broadcast => comm.start_broadcast(vec![1u8; bytes], 0),
        Collective::AllGather => comm.start_all_gather(own(), whole()),
        Collective::ReduceScatter => comm.start_reduce_scatter(whole(), own(), ReduceOp::Max),
        Collective::AllToAll => comm.start_all_to_all(whole(), whole()),
        Collective::Gather => comm.start_gather(own(), if comm.rank() == 0 { whole() } else { Vec::new() }, 0),
        Collective::Scatter => comm.start_scatter(if comm.rank() == 0 { whole() } else { Vec::new() }, own(), 0),
        Collective::Barrier => comm.start_barrier(),
        Collective::Send | Collective::Recv | Collective::SendRecv => {
            Err(comm.explain(question.collective, 0).err().unwrap_or_else(|| unreachable!("messages have no rows")))
        }
    }
}
