//! An exchange of 8 B between two cores, without a library and with it: what an all_reduce costs beside the way of its lines.
//!
//! Two threads, each with a number that depends on the other's last: over four lines in turn for each, which it alone writes;
//! over two lines that both write, each where it has just read; and by `all_reduce`.

#![allow(missing_docs, reason = "what the macros of criterion make has none")]
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use paceline_comm::{Communicator, ReduceOp};

/// Apart by more than a processor fetches together.
#[repr(align(256))]
#[derive(Default)]
struct Line {
    sequence: AtomicU64,
    number: AtomicU64,
}

impl Line {
    fn write(&self, exchange: u64, number: u64) {
        self.number.store(number, Ordering::Relaxed);
        self.sequence.store(exchange + 1, Ordering::Release);
    }

    fn read(&self, exchange: u64) -> u64 {
        while self.sequence.load(Ordering::Acquire) != exchange + 1 {}
        self.number.load(Ordering::Relaxed)
    }
}

/// How long `exchange(me, number)` takes two threads, so many times one after the other.
fn time(times: u64, exchange: impl Fn(usize, u64) + Sync) -> Duration {
    let barrier = Barrier::new(2);
    let run = |me: usize| {
        barrier.wait();
        let begin = Instant::now();
        (0..times).for_each(|number| exchange(me, number));
        begin.elapsed()
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run(1));
        run(0).max(other.join().expect("an exchange doesn't panic"))
    })
}

fn exchanges(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("exchange of 8 B");
    group.bench_function("four lines each, in turn", |b| {
        b.iter_custom(|times| {
            let lines: [[Line; 4]; 2] = Default::default();
            time(times, |me, exchange| {
                let place = (exchange % 4) as usize;
                lines[me][place].write(exchange, exchange);
                assert_eq!(lines[1 - me][place].read(exchange), exchange);
            })
        });
    });
    group.bench_function("two lines, to and fro", |b| {
        b.iter_custom(|times| {
            let lines: [Line; 2] = Default::default();
            time(times, |me, exchange| {
                let mine = me ^ (exchange & 1) as usize;
                lines[mine].write(exchange, exchange);
                assert_eq!(lines[1 - mine].read(exchange), exchange);
            })
        });
    });
    let ranks = Communicator::in_process(2).expect("memory for two ranks");
    group.bench_function("all_reduce", |b| {
        b.iter_custom(|times| {
            time(times, |me, exchange| {
                let mut sum = [0u64];
                ranks[me].all_reduce(&[exchange], &mut sum, ReduceOp::Sum).expect("both ranks are here");
                assert_eq!(sum, [2 * exchange]);
            })
        });
    });
    group.finish();
}

criterion_group!(benches, exchanges);
criterion_main!(benches);
