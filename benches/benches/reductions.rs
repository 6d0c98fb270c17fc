//! Reductions of every type and operator against memcpy, in the first- and in the second-level cache.
//!
//! `target = target (op) source` reads two streams and writes one; memcpy reads one and writes one. The throughput that is
//! printed counts all of them: three bytes for each of the target, and two.

#![allow(missing_docs, reason = "what the macros of criterion make has none")]
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use paceline_comm::reduce::Kernel;
use paceline_comm::{DataType, ReduceOp};

/// Two buffers of so many bytes lie in the cache.
const CACHES: [(&str, usize); 2] = [("first level", 12 << 10), ("second level", 128 << 10)];

fn reductions(criterion: &mut Criterion) {
    for (cache, bytes) in CACHES {
        let mut group = criterion.benchmark_group(format!("reduce/{cache}"));
        // Small numbers in every type: neither NaN nor subnormal.
        let source: Vec<u8> = (0..bytes).map(|at| 0x30 | (at * 7 % 13) as u8).collect();
        let mut target = source.clone();
        group.throughput(Throughput::Bytes(2 * bytes as u64));
        group.bench_function("memcpy", |b| {
            b.iter(|| std::hint::black_box(&mut target).copy_from_slice(std::hint::black_box(&source)));
        });
        group.throughput(Throughput::Bytes(3 * bytes as u64));
        for data_type in DataType::ALL {
            for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max] {
                let kernel = Kernel::of(data_type, op);
                // Sums that have grown are infinite, and products zero: each type and operator starts anew.
                target.copy_from_slice(&source);
                group.bench_function(BenchmarkId::new(op.name(), data_type.name()), |b| {
                    b.iter(|| kernel.accumulate_bytes(std::hint::black_box(&mut target), &source));
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, reductions);
criterion_main!(benches);
