//! Simulated clusters: hosts whose ranks share network adapters, with the real engine, on a clock that counts only the
//! network's time.

mod cluster;
mod prices;
mod traffic;

use paceline_comm::DataType;
use paceline_comm::algorithm::ROWS;
use paceline_comm::{Collective, ReduceOp};
use paceline_tests::case::Case;
use paceline_tests::mix;

use cluster::{Cluster, Speeds};

/// The host of each rank: in order, of different sizes, dealt out by turns, and drawn.
const SHAPES: [&[usize]; 5] = [
    &[0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3],
    &[0, 0, 0, 1, 1, 1, 1, 1],
    &[0, 1, 0, 1, 0, 1, 0, 1],
    &[2, 0, 0, 1, 0, 2, 0],
    &[0, 1, 2, 3, 4],
];

/// Every row, on every shape, with short and long messages.
#[test]
fn every_row_conforms_on_every_cluster() {
    let mut n_cases = 0;
    for hosts in SHAPES {
        for adapters_per_host in [1, 2] {
            let cluster = Cluster::new(hosts, &Speeds { adapters_per_host, ..Speeds::default() });
            for (number, row) in ROWS.iter().enumerate() {
                let ranks = hosts.len();
                if !(row.fits)(ranks as u32) || row.collective == Collective::Barrier {
                    continue;
                }
                let in_place =
                    matches!(row.collective, Collective::AllReduce | Collective::Reduce | Collective::Broadcast);
                for count in [1, 1000, 20_000] {
                    let seed = mix((number * 64 + count + adapters_per_host) as u64) >> 32;
                    let (data_type, op, root) = (DataType::I32, ReduceOp::Sum, seed as usize % ranks);
                    let case = Case { row, ranks, data_type, op, count, root, in_place, uneven: false, seed };
                    conforms(&cluster, &case);
                    n_cases += 1;
                }
            }
        }
    }
    assert!(n_cases > 5 * 2 * 30 * 3, "only {n_cases} cases");
}

fn conforms(cluster: &Cluster, case: &Case) {
    let columns = case.columns();
    let parts: Vec<_> = (0..case.ranks).map(|rank| case.part(rank, &columns)).collect();
    let played = cluster.call(|rank| parts[rank].start::<i32>(&cluster.comms()[rank]));
    for (rank, (result, part)) in played.results.into_iter().zip(&parts).enumerate() {
        let result = result.unwrap_or_else(|error| panic!("rank {rank}, {case:?}: {error}"));
        let wrong = part.want.compare(paceline_comm::reduce::as_bytes(&result));
        assert_eq!(wrong, None, "rank {rank}, {case:?}");
    }
}

#[test]
fn rows_are_chosen_and_placed_as_between_hosts() {
    let cluster = Cluster::new(&[0, 1, 0, 1, 0, 1, 0, 1], &Speeds::default());
    let comm = &cluster.comms()[3];
    assert_eq!(comm.layout().hosts(), [vec![0, 2, 4, 6], vec![1, 3, 5, 7]]);
    assert_eq!(comm.circumstances().hosts, [4, 4]);
    let long = comm.explain(Collective::AllReduce, 64 << 20).unwrap();
    let near = Cluster::new(&[0; 8], &Speeds::default());
    let alone = near.comms()[3].explain(Collective::AllReduce, 64 << 20).unwrap();
    assert!(alone.seconds < long.seconds, "{alone}\n{long}");
    // Whatever is chosen lets no more pass than has to.
    let bytes = 4 << 20;
    let played = cluster.call(|rank| cluster.comms()[rank].start_all_reduce(vec![1f32; bytes / 4], ReduceOp::Sum));
    assert!(played.results.iter().all(|result| result.as_ref().is_ok_and(|sums| sums.iter().all(|sum| *sum == 8.0))));
    assert_eq!(played.host_bytes, [[bytes as u64; 2]; 2], "{}", long.chosen);
}
