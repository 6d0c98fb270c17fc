//! What a call costs beside its bytes: one rank alone, and the writing of programs.

#![allow(missing_docs, reason = "what the macros of criterion make has none")]
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use paceline_comm::algorithm::row;
use paceline_comm::{Collective, Communicator, ReduceOp};

fn calls(criterion: &mut Criterion) {
    let comm = &Communicator::in_process(1).expect("one rank")[0];
    let (input, mut output) = ([1f32; 2], [0f32; 2]);
    criterion.bench_function("call/all_reduce of 8 B, one rank", |b| {
        b.iter(|| comm.all_reduce(&input, &mut output, ReduceOp::Sum).expect("one rank"));
    });
}

fn programs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("program");
    let rows = [(Collective::AllReduce, "ring", 16_384), (Collective::AllReduce, "recursive_doubling", 131_072)];
    for (collective, name, size) in rows {
        let row = row(collective, name).expect("a row of the table");
        group.bench_function(BenchmarkId::new(name, size), |b| b.iter(|| row.program(size / 3, size, 0)));
    }
    group.finish();
}

criterion_group!(benches, calls, programs);
criterion_main!(benches);
