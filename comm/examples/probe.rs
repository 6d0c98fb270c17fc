use paceline_comm::{CallOptions, Communicator, ReduceOp};
use std::time::Instant;
fn main() {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    let n: usize = std::env::args().nth(1).map_or(2, |s| s.parse().unwrap());
    let algorithm = std::env::args().nth(2);
    let ranks = if std::env::var("PACELINE_RANK").is_ok() { vec![Communicator::from_env().unwrap()] } else { Communicator::in_process(n).unwrap() };
    std::thread::scope(|scope| {
        for comm in &ranks {
            let algorithm = algorithm.clone();
            scope.spawn(move || {
                if comm.rank()==0 && comm.size() > 1 { println!("{:?} n={}", comm.link_kind(1), comm.size()); }
                let comm = comm.with(CallOptions { algorithm, ..Default::default() });
                let mut bytes = 8;
                while bytes <= 64 << 20 {
                    let input = vec![1f32; bytes / 4];
                    let mut output = vec![0f32; bytes / 4];
                    let iters = (200_000_000 / (bytes + 20_000)).clamp(3, 20_000);
                    for _ in 0..iters / 10 + 1 { comm.all_reduce(&input, &mut output, ReduceOp::Sum).unwrap(); }
                    assert!(output.iter().all(|x| *x == comm.size() as f32));
                    let mut best = f64::MAX;
                    for _ in 0..5 {
                        comm.barrier().unwrap();
                        let start = Instant::now();
                        for _ in 0..iters { comm.all_reduce(&input, &mut output, ReduceOp::Sum).unwrap(); }
                        best = best.min(start.elapsed().as_secs_f64() / iters as f64);
                    }
                    if comm.rank() == 0 { println!("{bytes:>10} {:>10.2} us", best * 1e6); }
                    bytes *= 8;
                }
            });
        }
    });
}
