//! Direct: every message goes straight from its owner to its reader, all in one round. Least latency, most messages.
//!
//! Reductions gather all contributions in scratch and fold them in one pass, in rank order, so that narrow floats are
//! rounded once and every rank folds in the same order.
//!
//! The reduce for n = 3:
//!
//! ```text
//! reduce direct
//! ranks 3 root 0 chunks 1
//!      | 0                        | 1    | 2    |
//!    0 | s1[0]<1 s2[0]<2 s0[0]=i0 | i0>0 | i0>0 |
//!    1 | 0=s0[0]*3                |      |      |
//! ```

use crate::schedule::Step::{Copy, Recv, Reduce, Send};
use crate::schedule::cost::{Load, Work};
use crate::schedule::{Program, Rank, Span, Step, input, output, scratch};

/// The other ranks, nearest after this one first, so that not all ranks talk to the same one first.
fn others(p: &Program) -> impl Iterator<Item = Rank> + use<> {
    let (me, n) = (u64::from(p.me), u64::from(p.size));
    (1..n).map(move |distance| ((me + distance) % n) as Rank)
}

/// Receives all contributions to what `own` is this rank's of, one slot each, and folds them into `target`.
fn gather_and_fold(p: &mut Program, sends: impl Iterator<Item = Step>, own: Span, like: u32, target: Span) {
    let receives = others(p).map(|from| Recv { from, target: scratch(from, like) });
    let copy = Copy { source: own, target: scratch(p.me, like) };
    p.round(sends.chain(receives).chain([copy]));
    p.round([Reduce { source: scratch(0, like), runs: p.size, target }]);
}

/// Everyone sends its vector to everyone; one fold of n runs.
pub fn all_reduce(p: &mut Program) {
    let sends = others(p).map(|to| Send { to, source: input(0) });
    gather_and_fold(p, sends, input(0), 0, output(0));
}

/// Everyone sends its vector to the root; one fold of n runs there.
pub fn reduce(p: &mut Program) {
    if p.me == p.root {
        gather_and_fold(p, std::iter::empty(), input(0), 0, output(0));
    } else {
        p.round([Send { to: p.root, source: input(0) }]);
    }
}

/// The root sends its vector to everyone.
pub fn broadcast(p: &mut Program) {
    if p.me == p.root {
        let copy = Copy { source: input(0), target: output(0) };
        p.round(others(p).map(|to| Send { to, source: input(0) }).chain([copy]));
    } else {
        p.round([Recv { from: p.root, target: output(0) }]);
    }
}

/// Everyone sends its block to everyone.
pub fn all_gather(p: &mut Program) {
    let sends = others(p).map(|to| Send { to, source: input(0) });
    let receives = others(p).map(|from| Recv { from, target: output(from) });
    p.round(sends.chain(receives).chain([Copy { source: input(0), target: output(p.me) }]));
}

/// Everyone sends each rank its share of that rank's block; one fold of n runs.
pub fn reduce_scatter(p: &mut Program) {
    let sends = others(p).map(|to| Send { to, source: input(to) });
    gather_and_fold(p, sends, input(p.me), p.me, output(0));
}

/// Everyone sends each rank its block. Not in place: a block would overwrite one not yet sent.
pub fn all_to_all(p: &mut Program) {
    let sends = others(p).map(|to| Send { to, source: input(to) });
    let receives = others(p).map(|from| Recv { from, target: output(from) });
    p.round(sends.chain(receives).chain([Copy { source: input(p.me), target: output(p.me) }]));
}

/// Everyone sends its block to the root.
pub fn gather(p: &mut Program) {
    if p.me == p.root {
        let receives = others(p).map(|from| Recv { from, target: output(from) });
        p.round(receives.chain([Copy { source: input(0), target: output(p.me) }]));
    } else {
        p.round([Send { to: p.root, source: input(0) }]);
    }
}

/// The root sends each rank its block.
pub fn scatter(p: &mut Program) {
    if p.me == p.root {
        let copy = Copy { source: input(p.me), target: output(0) };
        p.round(others(p).map(|to| Send { to, source: input(to) }).chain([copy]));
    } else {
        p.round([Recv { from: p.root, target: output(0) }]);
    }
}

/// Everyone tells everyone.
pub fn barrier(p: &mut Program) {
    let sends = others(p).map(|to| Send { to, source: input(0) });
    let receives = others(p).map(|from| Recv { from, target: output(0) });
    p.round(sends.chain(receives));
}

/// Whole vectors between all, and one fold.
pub fn all_reduce_work(n: u32) -> Work {
    let others = f64::from(n - 1);
    Work::steady(1.0, Load::messages(others, others).folding(others).copying(1.0))
}

/// Whole vectors from all but the root, or to them.
pub fn broadcast_work(n: u32) -> Work {
    let others = f64::from(n - 1);
    Work::steady(1.0, Load::messages(others, others).copying(1.0))
}

/// A block to, or from, all others.
pub fn blocks_work(n: u32) -> Work {
    let (n, others) = (f64::from(n), f64::from(n - 1));
    Work::steady(1.0, Load::messages(others, others / n).copying(1.0 / n))
}

/// A block to and from all others, and one fold.
pub fn reduce_scatter_work(n: u32) -> Work {
    let (n, others) = (f64::from(n), f64::from(n - 1));
    Work::steady(1.0, Load::messages(others, others / n).folding(others / n).copying(1.0 / n))
}

/// A message to all others.
pub fn barrier_work(n: u32) -> Work {
    Work::steady(1.0, Load::messages(f64::from(n - 1), 0.0))
}
