//! Layouts of large clusters: what is computed from where ranks are is the same everywhere, and soon there.

use std::time::{Duration, Instant};

use paceline_comm::algorithm::{ROWS, row};
use paceline_comm::collective::Collective;
use paceline_comm::topology::{Crossing, Layout, Spot};

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
