//! Binomial tree: ⌈log₂ n⌉ hops between the root and the farthest rank; any n, any root.
//!
//! Counted from the root, place v hangs below the place without v's lowest set bit, and stands for the places from v on
//! as many as that bit says. The children of place 0, for n = 8, are 4, 2 and 1, which stand for 4, 2 and 1 places.
//!
//! The gather to rank 1 for n = 4:
//!
//! ```text
//! gather binomial
//! ranks 4 root 1 chunks 4
//!      | 0    | 1                | 2    | 3                |
//!    0 | i0>3 | 1=i0 2<2 3<3 0<3 | i0>1 | s0[3]=i0 s1[0]<0 |
//!    1 |      |                  |      | s0[3]>1 s1[0]>1  |
//! ```

use super::cyclic::cut;
use crate::schedule::Step::{Copy, Recv, RecvReduce, Send};
use crate::schedule::cost::{Load, Work};
use crate::schedule::{Program, Rank, Span, input, output, scratch};

/// How many places the place stands for, itself included.
fn width(place: u32, n: u32) -> u32 {
    match place {
        0 => n,
        _ => (1 << place.trailing_zeros()).min(n - place),
    }
}

/// The children of a place, the one that stands for least first.
fn children(place: u32, n: u32) -> impl DoubleEndedIterator<Item = u32> {
    let n_children = if place == 0 { 32 - (n - 1).leading_zeros() } else { place.trailing_zeros() };
    (0..n_children).map(move |i| place + (1 << i)).filter(move |child| *child < n)
}

/// The rank above this one, unless it is the root.
fn parent(p: &Program) -> Option<Rank> {
    let place = p.place();
    (place > 0).then(|| p.rank_at(place & (place - 1)))
}

/// Down the tree; the child that stands for most first.
pub fn broadcast(p: &mut Program) {
    p.round(parent(p).map(|from| Recv { from, target: output(0) }));
    let own = (p.me == p.root).then_some(Copy { source: input(0), target: output(0) });
    let source = if p.me == p.root { input(0) } else { output(0) };
    let sends: Vec<_> = children(p.place(), p.size).rev().map(|c| Send { to: p.rank_at(c), source }).collect();
    p.round(sends.into_iter().chain(own));
}

/// Up the tree; the child that stands for least first.
pub fn reduce(p: &mut Program) {
    let sum = if p.me == p.root { output(0) } else { scratch(0, 0) };
    let mut held = input(0);
    for child in children(p.place(), p.size) {
        p.round([RecvReduce { from: p.rank_at(child), source: held, target: sum }]);
        held = sum;
    }
    p.round(parent(p).map(|to| Send { to, source: held }));
}

/// Where the blocks of `count` places from `offset` places after this one lie, on their way up or down.
///
/// The blocks of the places that a rank stands for are a run that may go around the end: at the root they lie in the
/// input or output, elsewhere in scratch, those before the end from slot 0 on and those after it behind.
fn on_the_way(p: &Program, place: u32, offset: u32, count: u32, at_root: fn(u32) -> Span) -> Vec<Span> {
    let first = p.rank_at(place);
    let before_end = (p.size - first).min(width(place, p.size));
    let run = |block: u32| match block {
        _ if place == 0 => at_root(block),
        _ if block >= first => scratch(0, first).part(block - first, 1),
        _ => scratch(before_end, 0).part(block, 1),
    };
    cut(p.rank_at(place + offset), count, p.size).map(|piece| run(piece.block).run(piece.count)).collect()
}

/// Up the tree, each rank sending what it stands for.
pub fn gather(p: &mut Program) {
    let (place, n) = (p.place(), p.size);
    let width_here = width(place, n);
    if width_here == 1 {
        p.round(parent(p).map(|to| Send { to, source: input(0) }));
        return;
    }
    let own = Copy { source: input(0), target: on_the_way(p, place, 0, 1, output)[0] };
    let mut steps = vec![own];
    for child in children(place, n) {
        let from = p.rank_at(child);
        let targets = on_the_way(p, place, child - place, width(child, n), output);
        steps.extend(targets.into_iter().map(|target| Recv { from, target }));
    }
    p.round(steps);
    if let Some(to) = parent(p) {
        let sources = on_the_way(p, place, 0, width_here, output);
        p.round(sources.into_iter().map(|source| Send { to, source }));
    }
}

/// Down the tree, each rank receiving what it stands for.
pub fn scatter(p: &mut Program) {
    let (place, n) = (p.place(), p.size);
    let width_here = width(place, n);
    if width_here == 1 {
        p.round(parent(p).map(|from| Recv { from, target: output(0) }));
        return;
    }
    if let Some(from) = parent(p) {
        let targets = on_the_way(p, place, 0, width_here, input);
        p.round(targets.into_iter().map(|target| Recv { from, target }));
    }
    let mut steps = Vec::new();
    for child in children(place, n).rev() {
        let to = p.rank_at(child);
        let sources = on_the_way(p, place, child - place, width(child, n), input);
        steps.extend(sources.into_iter().map(|source| Send { to, source }));
    }
    steps.push(Copy { source: on_the_way(p, place, 0, 1, input)[0], target: output(0) });
    p.round(steps);
}

/// Whole vectors: the root has most to do.
pub fn broadcast_work(n: u32) -> Work {
    let n_children = f64::from(n.next_power_of_two().ilog2());
    Work::steady(f64::from(n.ilog2()), Load::messages(n_children, n_children).copying(1.0))
}

/// The same with folds.
pub fn reduce_work(n: u32) -> Work {
    let Work { latencies, path, .. } = broadcast_work(n);
    Work::steady(latencies, path.folding(path.sent))
}

/// Blocks: each byte of the root's passes its port once.
pub fn blocks_work(n: u32) -> Work {
    let n_children = f64::from(n.next_power_of_two().ilog2());
    let (n, latencies) = (f64::from(n), f64::from(n.ilog2()));
    Work::steady(latencies, Load::messages(n_children, (n - 1.0) / n).copying(1.0 / n))
}
