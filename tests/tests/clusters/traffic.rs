//! What passes the adapters is what has to, byte for byte.

use paceline_comm::algorithm::row;
use paceline_comm::{Collective, ReduceOp};

use crate::SHAPES;
use crate::cluster::{Cluster, Speeds};

/// Elements of a block; of a vector, as many for each rank.
const COUNT: usize = 5040;

/// What must leave or enter a host with so many of `n` ranks, of `k` hosts, in bytes: whichever of the two is more.
fn least(collective: Collective, ranks: u64, n: u64, k: u64) -> u64 {
    let block = 4 * COUNT as u64;
    let whole = n * block;
    match collective {
        Collective::AllReduce => 2 * whole * (k - 1) / k,
        Collective::AllGather | Collective::ReduceScatter => (n - ranks) * block,
        Collective::AllToAll => ranks * (n - ranks) * block,
        // Where the root is, it leaves once; elsewhere it comes in once.
        Collective::Broadcast => whole,
        _ => unreachable!("no row of two levels"),
    }
}

#[test]
fn two_levels_let_pass_what_has_to() {
    // Hosts of one rank each have nothing to save.
    for hosts in SHAPES.into_iter().filter(|hosts| !hosts.is_sorted_by(|a, b| a < b)) {
        for adapters_per_host in [1, 2] {
            let cluster = Cluster::new(hosts, &Speeds { adapters_per_host, ..Speeds::default() });
            // The library numbers hosts by their first ranks; the network's numbers are ours.
            let n_hosts = cluster.layout.n_hosts() as u64;
            let ranks_of = |host: usize| hosts.iter().filter(|&&other| other == host).count() as u64;
            let n = hosts.len();
            for collective in [
                Collective::AllReduce,
                Collective::AllGather,
                Collective::ReduceScatter,
                Collective::AllToAll,
                Collective::Broadcast,
            ] {
                let comms = cluster.with(row(collective, "two_level").expect("there is such a row"));
                let (root, op) = (n - 1, ReduceOp::Sum);
                let ones = |n: usize| vec![1i32; n * COUNT];
                let played = cluster.call(|rank| {
                    let comm = &comms[rank];
                    match collective {
                        Collective::AllReduce => comm.start_all_reduce(ones(n), op),
                        Collective::AllGather => comm.start_all_gather(ones(1), ones(n)),
                        Collective::ReduceScatter => comm.start_reduce_scatter(ones(n), ones(1), op),
                        Collective::AllToAll => comm.start_all_to_all(ones(n), ones(n)),
                        _ => comm.start_broadcast(ones(n), root),
                    }
                });
                assert!(played.results.iter().all(Result::is_ok), "{hosts:?} {collective}");
                let all: u64 = played.host_bytes.iter().map(|[out, _]| out).sum();
                assert_eq!(all, played.host_bytes.iter().map(|[_, into]| into).sum::<u64>(), "what leaves arrives");
                for (host, both) in played.host_bytes.iter().enumerate() {
                    let least = least(collective, ranks_of(host), n as u64, n_hosts);
                    // Where chunks don't divide evenly, some are a few elements longer.
                    let spare = if collective == Collective::AllReduce { least / 100 } else { 0 };
                    let passed = match collective {
                        Collective::ReduceScatter => both[0],
                        Collective::AllGather => both[1],
                        _ => both[0].max(both[1]),
                    };
                    let range = least - spare..=least + spare;
                    assert!(range.contains(&passed), "{hosts:?} {collective}, host {host}: {both:?}, least {least}");
                }
            }
        }
    }
}
