//! Circulant graph: bandwidth-optimal in ⌈log₂ n⌉ rounds (twice that for all-reduce), for any n.
//!
//! Träff: "Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms", arXiv 2410.14234, 2024. Distances are n
//! halved again and again, rounded up. Rank r keeps partial sums of blocks r, r + 1, ..., as many as the last distance,
//! and gives those beyond the next distance to the rank that many places on, for which they are the first ones.
//!
//! The all-reduce for n = 3:
//!
//! ```text
//! all_reduce circulant
//! ranks 3 root 0 chunks 3
//!      | 0           | 1           | 2           |
//!    0 | i2>2 0=i0+1 | i0>0 1=i1+2 | i1>1 2=i2+0 |
//!    1 | i1>1 0+2    | i2>2 1+0    | i0>0 2+1    |
//!    2 | 0>2 1<1     | 1>0 2<2     | 2>1 0<0     |
//!    3 | 0>1 2<2     | 1>2 0<0     | 2>0 1<1     |
//! ```

use super::bruck;
use super::cyclic::cut;
use crate::schedule::Step::{RecvReduce, Send};
use crate::schedule::cost::{Load, Work};
use crate::schedule::{Program, Rank, Span, input, output, scratch};

/// The pairs of distances: how many blocks are held before a round, and how many after.
fn distances(n: u32) -> impl Iterator<Item = (u32, u32)> {
    std::iter::successors(Some(n), |held| Some(held.div_ceil(2)))
        .take_while(|held| *held > 1)
        .map(|h| (h, h.div_ceil(2)))
}

/// A run of blocks that is contiguous wherever it is, and whether partial sums of it exist already.
struct Portion {
    block: u32,
    count: u32,
    summed: bool,
}

/// What rank `rank` gives away in a round: blocks `rank + kept .. rank + held`, of which it has sums up to `n_summed`.
fn given(rank: Rank, (held, kept): (u32, u32), n_summed: u32, n: u32) -> impl Iterator<Item = Portion> {
    let middle = n_summed.clamp(kept, held);
    [(kept, middle, true), (middle, held, false)].into_iter().flat_map(move |(from, to, summed)| {
        let first = ((u64::from(rank) + u64::from(from)) % u64::from(n)) as u32;
        cut(first, to - from, n).map(move |piece| Portion { block: piece.block, count: piece.count, summed })
    })
}

/// Writes the reduce-scatter. `sums` says where the partial sums of a run of blocks are kept; `last` is where those of
/// block `me` end.
fn reduce_scatter_with(p: &mut Program, sums: impl Fn(u32, u32) -> Span, last: Span) {
    let n = p.size;
    let mut n_summed = 0;
    for round in distances(n) {
        let (held, kept) = round;
        let (to, from) = (p.peer(i64::from(kept)), p.peer(-i64::from(kept)));
        let leaving = given(p.me, round, n_summed, n).map(|portion| {
            let Portion { block, count, summed } = portion;
            Send { to, source: if summed { sums(block, count) } else { input(block).run(count) } }
        });
        let arriving = given(from, round, n_summed, n).map(|Portion { block, count, .. }| {
            let target = if kept == 1 { last } else { sums(block, count) };
            let source = if n_summed == 0 { input(block).run(count) } else { sums(block, count) };
            RecvReduce { from, source, target }
        });
        p.round(leaving.chain(arriving).collect::<Vec<_>>());
        n_summed = n_summed.max(held - kept);
    }
}

/// From the vector in the input to chunk `me` of the output, reduced; leaves partial sums in the rest of the output.
pub fn reduce_scatter_phase(p: &mut Program) {
    reduce_scatter_with(p, |block, count| output(block).run(count), output(p.me));
}

/// Partial sums in scratch: those of the blocks from `me` to the last one, and behind them those from block 0 on.
pub fn reduce_scatter(p: &mut Program) {
    let (me, before_end) = (p.me, (p.size - p.me).min(p.size / 2));
    let sums = move |block: u32, count: u32| match block {
        _ if block >= me => scratch(0, me).part(block - me, count),
        _ => scratch(before_end, 0).part(block, count),
    };
    reduce_scatter_with(p, sums, output(0));
}

/// The reduce-scatter, and Bruck's all-gather of what it left.
pub fn all_reduce(p: &mut Program) {
    reduce_scatter_phase(p);
    bruck::all_gather_phase(p);
}

/// A round sends one message, and two where the run goes around the end; some rank always is there.
pub fn reduce_scatter_work(n: u32) -> Work {
    let messages: u32 = distances(n).map(|(held, kept)| (held - kept).min(2)).sum();
    let part = f64::from(n - 1) / f64::from(n);
    Work::steady(distances(n).count() as f64, Load::messages(f64::from(messages), part).folding(part))
}

/// Both phases.
pub fn all_reduce_work(n: u32) -> Work {
    reduce_scatter_work(n).then(bruck::all_gather_phase_work(n))
}
