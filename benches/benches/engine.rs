//! What a call costs beside its bytes: one rank alone, and eight in one thread.

#![allow(missing_docs, reason = "what the macros of criterion make has none")]
use criterion::{Criterion, criterion_group, criterion_main};
use paceline_comm::{CallOptions, Communicator, ReduceOp};
use paceline_transport::sim::RankStep;

fn calls(criterion: &mut Criterion) {
    let comm = &Communicator::in_process(1).expect("one rank")[0];
    let (input, mut output) = ([1f32; 2], [0f32; 2]);
    criterion.bench_function("call/all_reduce of 8 B, one rank", |b| {
        b.iter(|| comm.all_reduce(&input, &mut output, ReduceOp::Sum).expect("one rank"));
    });
}

/// Eight ranks in one thread, so that nothing is waited for: the ring's 224 sends and receives.
fn steps(criterion: &mut Criterion) {
    let ranks = Communicator::in_one_thread(8).expect("eight ranks");
    let ring = CallOptions { algorithm: Some("ring".into()), ..CallOptions::default() };
    let ranks: Vec<_> = ranks.iter().map(|comm| comm.with(ring.clone())).collect();
    let mut buffers = vec![vec![1f32; 8]; 8];
    criterion.bench_function("steps/ring all_reduce of 32 B, eight ranks, one thread", |b| {
        b.iter(|| {
            let start = |(comm, buffer): (&Communicator, Vec<f32>)| comm.start_all_reduce(buffer, ReduceOp::Max);
            let works: Vec<_> = ranks.iter().zip(buffers.drain(..)).map(start).collect();
            while !ranks.iter().fold(true, |done, comm| done & (comm.step() == RankStep::Done)) {}
            buffers
                .extend(works.into_iter().map(|work| work.and_then(|work| work.wait()).expect("all ranks have come")));
        });
    });
}

criterion_group!(benches, calls, steps);
criterion_main!(benches);
