//! What rows are said to take between hosts, and what they take on a network whose hosts' ranks share adapters.

use paceline_comm::Collective;
use paceline_comm::ReduceOp;
use paceline_comm::algorithm::{Row, rows_for};
use paceline_comm::schedule::cost::Costs;
use paceline_comm::topology::Links;

use crate::cluster::{Cluster, Speeds};

/// The most bytes that one chunk has in a slice, between hosts.
const CHUNK_BYTES: usize = 1 << 20;

/// What the network of such a cluster charges: messages and work are free.
fn links(speeds: &Speeds) -> Links {
    let costs = |latency_s, bytes_per_second: u64| Costs {
        latency_s,
        message_s: 0.0,
        byte_s: 1.0 / bytes_per_second as f64,
        fold_byte_s: 0.0,
        copy_byte_s: 0.0,
    };
    let host_rate = speeds.adapter_bytes_per_second * speeds.adapters_per_host as u64;
    Links {
        near: costs(speeds.near_latency.as_secs_f64(), speeds.rank_bytes_per_second),
        far: costs(speeds.far_latency.as_secs_f64(), host_rate),
        at_once: true,
    }
}

fn predicted(cluster: &Cluster, row: &'static Row, bytes: usize, speeds: &Speeds) -> f64 {
    let chunks = cluster.layout.chunks(row) as usize;
    let n_slices = if row.moves_runs { 1 } else { bytes.div_ceil(CHUNK_BYTES * chunks) };
    let work = row.work_in(cluster.layout.groups());
    let ranks_per_host = (cluster.size() / cluster.layout.n_hosts() as usize) as u32;
    let crossing = cluster.layout.crossing(row).over_adapters(speeds.adapters_per_host as u32, ranks_per_host);
    crossing.seconds(&work, bytes as u64, n_slices as u32, &links(speeds))
}

fn measured(cluster: &Cluster, row: &'static Row, bytes: usize) -> f64 {
    let (comms, n) = (cluster.with(row), cluster.size() as f32);
    let played = cluster.call(|rank| comms[rank].start_all_reduce(vec![1f32; bytes / 4], ReduceOp::Sum));
    for result in played.results {
        assert!(result.expect("a sum").iter().all(|sum| *sum == n), "{}", row.name);
    }
    played.seconds
}

fn shape(sizes: &[usize]) -> Vec<usize> {
    sizes.iter().enumerate().flat_map(|(host, &n)| vec![host; n]).collect()
}

#[test]
fn all_reduce_between_hosts_takes_what_its_price_says() {
    let fast = || Speeds { rank_bytes_per_second: 200_000_000_000, ..Speeds::default() };
    let two = || Speeds { adapters_per_host: 2, ..Speeds::default() };
    let shapes: [(&[usize], Speeds); 7] = [
        (&[4, 4, 4, 4], Speeds::default()),
        (&[4, 4, 4, 4], two()),
        (&[4, 4, 4, 4], fast()),
        (&[8, 8], Speeds::default()),
        (&[3, 5], Speeds::default()),
        // So few ranks that long messages are cut into slices.
        (&[2, 2], Speeds::default()),
        (&[2; 8], Speeds::default()),
    ];
    let mut wrong = Vec::new();
    for (sizes, speeds) in shapes {
        let cluster = Cluster::new(&shape(sizes), &speeds);
        for bytes in [512 << 10, 4 << 20, 16 << 20] {
            for row in rows_for(Collective::AllReduce).filter(|row| (row.fits)(cluster.size() as u32)) {
                // What long messages go by is close; others may be off, trees most: their ranks wait for each other.
                let range = if ["ring", "two_level"].contains(&row.name) { 0.85..=1.15 } else { 0.75..=1.75 };
                if row.name == "direct" && bytes > 1 << 20 {
                    continue;
                }
                let (says, takes) = (predicted(&cluster, row, bytes, &speeds), measured(&cluster, row, bytes));
                let ratio = takes / says;
                let line = format!(
                    "{sizes:?} x{} near {} GB/s, {bytes:>8} B {:<18} takes {:>9.1} us, priced {:>9.1} us, {ratio:.2}",
                    speeds.adapters_per_host,
                    speeds.rank_bytes_per_second / 1_000_000_000,
                    row.name,
                    takes * 1e6,
                    says * 1e6
                );
                println!("{line}");
                if !range.contains(&ratio) {
                    wrong.push(line);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
