//! How fast each reduction is, beside a copy: `cargo run --release -p paceline-comm --example reduce_rates [KiB] [type]`.
//!
//! Bytes of the target per second, as a share of what memcpy does with buffers of the same size (by default 128 KiB,
//! so that three of them lie in a second-level cache). Below 1 the reduction is slower than the copy.

use std::hint::black_box;
use std::time::{Duration, Instant};

use paceline_comm::reduce::{DataType, Kernel, Level, ReduceOp};

fn main() {
    let bytes = std::env::args().nth(1).map_or(128, |kib| kib.parse::<usize>().expect("a number of KiB")) << 10;
    let only = std::env::args().nth(2).map(|name| DataType::named(&name).expect("an element type"));
    let mut target = vec![0u8; bytes];
    let sources: Vec<Vec<u8>> = (0..8).map(|seed| noise(seed, bytes)).collect();
    let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
    let rate = |call: &mut dyn FnMut(&mut [u8])| bytes as f64 / fastest(&mut target.clone(), call) / 1e9;

    let copy = |target: &mut [u8]| target.copy_from_slice(black_box(sources[0]));
    println!("memcpy of {} KiB: {:.1} GB/s", bytes >> 10, rate(&mut { copy }));
    println!("{:>9} {:>9} {:>7} | shares of memcpy's rate:", "level", "type", "op");
    println!("{:>27} | {:>8} {:>8} {:>8} {:>8} {:>8}", "", "combine", "in place", "fold 3", "fold 4", "fold 8");
    for level in Level::ALL.iter().copied().filter(|level| level.is_available()) {
        for data_type in DataType::ALL.into_iter().filter(|data_type| only.is_none_or(|only| only == *data_type)) {
            for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max] {
                let kernel = Kernel::at(level, data_type, op);
                let calls: [Call; 5] = [
                    &mut |target| kernel.combine_bytes(target, sources[0], sources[1]),
                    &mut |target| kernel.accumulate_bytes(target, sources[1]),
                    &mut |target| kernel.fold_bytes(target, &sources[..3]),
                    &mut |target| kernel.fold_bytes(target, &sources[..4]),
                    &mut |target| kernel.fold_bytes(target, &sources[..8]),
                ];
                print!("{:>9} {data_type:>9} {op:>7} |", format!("{level:?}"));
                for call in calls {
                    print!(" {:>8.2}", rate(call) / rate(&mut { copy }));
                }
                println!();
            }
            let average = Kernel::at(level, data_type, ReduceOp::Avg);
            let scaled = Kernel::at(level, data_type, ReduceOp::PreMulSum(0x3838_3838_3838_3838));
            print!("{:>9} {data_type:>9} {:>7} |", format!("{level:?}"), "scale");
            println!(" {:>8.2}", rate(&mut |target| scaled.scale_bytes(target, sources[0])) / rate(&mut { copy }));
            print!("{:>9} {data_type:>9} {:>7} |", format!("{level:?}"), "finish");
            for ranks in [2, 3] {
                print!(" {:>8.2}", rate(&mut |target| average.finish_bytes(ranks, target)) / rate(&mut { copy }));
            }
            println!("  (2 and 3 ranks)");
        }
    }
    target[0] = 1;
}

/// Something to measure, on a target.
type Call<'a> = &'a mut dyn FnMut(&mut [u8]);

/// The seconds of the fastest of a few batches, per call.
fn fastest(target: &mut [u8], call: &mut dyn FnMut(&mut [u8])) -> f64 {
    let batch = |target: &mut [u8], call: &mut dyn FnMut(&mut [u8]), calls: u32| {
        let start = Instant::now();
        for _ in 0..calls {
            call(black_box(target));
        }
        start.elapsed()
    };
    let once = batch(target, call, 2).max(Duration::from_nanos(100)) / 2;
    let calls = (Duration::from_micros(1000).div_duration_f64(once) as u32).max(1);
    (0..5).map(|_| batch(target, call, calls).as_secs_f64() / f64::from(calls)).fold(f64::INFINITY, f64::min)
}

/// Bytes that are small numbers in every type, so that neither NaN nor subnormal numbers are measured.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed + 1;
    (0..bytes)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            0x30 | (state >> 60) as u8
        })
        .collect()
}
