//! Reductions against memcpy: bytes of target per second, in the second-level cache.

#![allow(missing_docs, reason = "what the macros of criterion make has none")]
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use paceline_comm::reduce::Kernel;
use paceline_comm::{DataType, ReduceOp};

const BYTES: usize = 128 << 10;

fn reductions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("reduce");
    group.throughput(Throughput::Bytes(BYTES as u64));
    let source = vec![1u8; BYTES];
    let mut target = vec![1u8; BYTES];
    group.bench_function("memcpy", |b| b.iter(|| target.copy_from_slice(std::hint::black_box(&source))));
    for data_type in [DataType::F32, DataType::F64, DataType::I32, DataType::Bf16, DataType::F16] {
        for op in [ReduceOp::Sum, ReduceOp::Max] {
            let kernel = Kernel::of(data_type, op);
            group.bench_function(BenchmarkId::new(op.name(), data_type.name()), |b| {
                b.iter(|| kernel.accumulate_bytes(std::hint::black_box(&mut target), &source));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, reductions);
criterion_main!(benches);
