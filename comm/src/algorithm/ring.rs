//! Ring: bandwidth-optimal and linear in rounds. Each rank talks to two neighbours only.
//!
//! For n = 4 (`i3>1` sends chunk 3 of the input to rank 1; `2=i2+3` folds what arrives from rank 3 with chunk 2 of the
//! input, and keeps it as chunk 2 of the output):
//!
//! ```text
//! all_reduce ring
//! ranks 4 root 0 chunks 4
//!      | 0           | 1           | 2           | 3           |
//!    0 | i3>1 2=i2+3 | i0>2 3=i3+0 | i1>3 0=i0+1 | i2>0 1=i1+2 |
//!    1 | 2>1 1=i1+3  | 3>2 2=i2+0  | 0>3 3=i3+1  | 1>0 0=i0+2  |
//!    2 | 1>1 0=i0+3  | 2>2 1=i1+0  | 3>3 2=i2+1  | 0>0 3=i3+2  |
//!    3 | 0>1 3<3     | 1>2 0<0     | 2>3 1<1     | 3>0 2<2     |
//!    4 | 3>1 2<3     | 0>2 3<0     | 1>3 0<1     | 2>0 1<2     |
//!    5 | 2>1 1<3     | 3>2 2<0     | 0>3 3<1     | 1>0 0<2     |
//! ```

use crate::schedule::Step::{Copy, Recv, RecvReduce, Send};
use crate::schedule::cost::{Load, Work};
use crate::schedule::{Program, Span, input, output, scratch};

/// How many chunks the chains cut a message into: the last rank of a chain starts that much earlier.
pub const CHAIN_CHUNKS: u32 = 8;

/// From the vector in the input to chunk `me` of the output, reduced; leaves partial sums in the rest of the output.
pub fn reduce_scatter_phase(p: &mut Program) {
    for r in 0..i64::from(p.size) - 1 {
        let (leaving, arriving) = (p.peer(-1 - r), p.peer(-2 - r));
        let source = if r == 0 { input(leaving) } else { output(leaving) };
        p.round([
            Send { to: p.peer(1), source },
            RecvReduce { from: p.peer(-1), source: input(arriving), target: output(arriving) },
        ]);
    }
}

/// From chunk `me` of the output to all chunks of the output.
pub fn all_gather_phase(p: &mut Program) {
    for r in 0..i64::from(p.size) - 1 {
        let (leaving, arriving) = (p.peer(-r), p.peer(-1 - r));
        p.round([Send { to: p.peer(1), source: output(leaving) }, Recv { from: p.peer(-1), target: output(arriving) }]);
    }
}

/// Every rank holds the reduction of all vectors, in 2(n-1) rounds.
pub fn all_reduce(p: &mut Program) {
    reduce_scatter_phase(p);
    all_gather_phase(p);
}

/// Partial sums travel once around, through two slots of scratch, and end where they belong.
pub fn reduce_scatter(p: &mut Program) {
    let n = p.size;
    for r in 0..n - 1 {
        let (leaving, arriving) = (p.peer(-1 - i64::from(r)), p.peer(-2 - i64::from(r)));
        let source = if r == 0 { input(leaving) } else { scratch((r - 1) % 2, leaving) };
        let target = if r == n - 2 { output(0) } else { scratch(r % 2, arriving) };
        p.round([Send { to: p.peer(1), source }, RecvReduce { from: p.peer(-1), source: input(arriving), target }]);
    }
}

/// Blocks travel once around.
pub fn all_gather(p: &mut Program) {
    for r in 0..i64::from(p.size) - 1 {
        let (leaving, arriving) = (p.peer(-r), p.peer(-1 - r));
        let source = if r == 0 { input(0) } else { output(leaving) };
        let own = (r == 0).then(|| Copy { source: input(0), target: output(p.me) });
        let moves = [Send { to: p.peer(1), source }, Recv { from: p.peer(-1), target: output(arriving) }];
        p.round(own.into_iter().chain(moves));
    }
}

/// A chain from the root on: each rank passes chunk c on while chunk c + 1 arrives.
pub fn broadcast(p: &mut Program) {
    let (n, place, k) = (p.size, p.place(), p.chunks);
    let pass = |chunk: u32| -> Span { if place == 0 { input(chunk) } else { output(chunk) } };
    for t in 0..=k {
        let own = (place == 0 && t > 0).then(|| Copy { source: input(t - 1), target: output(t - 1) });
        let arriving = (place > 0 && t < k).then(|| Recv { from: p.peer(-1), target: output(t) });
        let leaving = (place + 1 < n && t > 0).then(|| Send { to: p.peer(1), source: pass(t - 1) });
        p.round([own, arriving, leaving].into_iter().flatten());
    }
}

/// A chain towards the root: each rank folds chunk c + 1 in while chunk c moves on.
pub fn reduce(p: &mut Program) {
    let (n, place, k) = (p.size, p.place(), p.chunks);
    let target = |chunk: u32| if place == 0 { output(chunk) } else { scratch(chunk % 2, chunk) };
    let pass = |chunk: u32| if place == n - 1 { input(chunk) } else { target(chunk) };
    for t in 0..=k {
        let arriving =
            (place + 1 < n && t < k).then(|| RecvReduce { from: p.peer(1), source: input(t), target: target(t) });
        let leaving = (place > 0 && t > 0).then(|| Send { to: p.peer(-1), source: pass(t - 1) });
        p.round([arriving, leaving].into_iter().flatten());
    }
}

/// What the two phases cost.
pub fn all_reduce_work(n: u32) -> Work {
    let n = f64::from(n);
    Work::steady(2.0 * (n - 1.0), Load::messages(2.0 * (n - 1.0), 2.0 * (n - 1.0) / n).folding((n - 1.0) / n))
}

/// What one time around costs, with folds.
pub fn reduce_scatter_work(n: u32) -> Work {
    let n = f64::from(n);
    Work::steady(n - 1.0, Load::messages(n - 1.0, (n - 1.0) / n).folding((n - 1.0) / n))
}

/// What one time around costs.
pub fn all_gather_work(n: u32) -> Work {
    let n = f64::from(n);
    Work::steady(n - 1.0, Load::messages(n - 1.0, (n - 1.0) / n).copying(1.0 / n))
}

/// What a chain costs: the last rank starts n - 2 chunks late.
pub fn broadcast_work(n: u32) -> Work {
    let (n, k) = (f64::from(n), f64::from(CHAIN_CHUNKS));
    let n_passed = n + k - 2.0;
    let busiest = Load::messages(k, 1.0).copying(1.0);
    Work { latencies: n - 1.0, path: Load::messages(n_passed, n_passed / k), busiest }
}

/// What a chain with folds costs.
pub fn reduce_work(n: u32) -> Work {
    let Work { latencies, path, busiest } = broadcast_work(n);
    Work { latencies, path: path.folding(path.sent), busiest: busiest.folding(1.0).copying(0.0) }
}
