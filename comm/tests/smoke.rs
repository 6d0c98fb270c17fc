//! Every row over a few types and sizes, ranks as threads.
use paceline_comm::algorithm::ROWS;
use paceline_comm::{CallOptions, Collective, Communicator, ReduceOp};

fn run(n: usize, work: impl Fn(&Communicator) + Sync) {
    let ranks = Communicator::in_process(n).unwrap();
    std::thread::scope(|scope| {
        for comm in &ranks {
            let work = &work;
            scope.spawn(move || work(comm));
        }
    });
}

#[test]
fn all_reduce_rows() {
    for n in 1..=9 {
        run(n, |comm| {
            for row in ROWS.iter().filter(|r| r.collective == Collective::AllReduce && (r.fits)(n as u32)) {
                let comm = comm.with(CallOptions { algorithm: Some(row.name.into()), ..Default::default() });
                for len in [0usize, 1, 2, 5, 17, 1000, 100_000, 700_000] {
                    let input: Vec<i32> = (0..len).map(|i| (i % 100) as i32 + comm.rank() as i32).collect();
                    let mut output = vec![0; len];
                    comm.all_reduce(&input, &mut output, ReduceOp::Sum).unwrap();
                    for (i, got) in output.iter().enumerate() {
                        let want = n as i32 * (i % 100) as i32 + (n * (n - 1) / 2) as i32;
                        assert_eq!(*got, want, "{} n={n} len={len} i={i}", row.name);
                    }
                }
            }
        });
    }
}
