//! Halving and doubling (Rabenseifner): log₂ n rounds that halve what is exchanged, then log₂ n that double it.
//!
//! Rabenseifner: "Optimization of Collective Reduction Operations", 2004. Bandwidth-optimal for powers of two. For
//! other n the ranks beyond the core exchange halves with their neighbours before and get the whole result after, which
//! costs two more messages' time; `circulant` does not have that cost.
//!
//! The all-reduce for n = 4:
//!
//! ```text
//! all_reduce halving_doubling
//! ranks 4 root 0 chunks 4
//!      | 0                    | 1                    | 2                    | 3                    |
//!    0 | i2..4>2 0..2=i0..2+2 | i2..4>3 0..2=i0..2+3 | i0..2>0 2..4=i2..4+0 | i0..2>1 2..4=i2..4+1 |
//!    1 | 1>1 0+1              | 0>0 1+0              | 3>3 2+3              | 2>2 3+2              |
//!    2 | 0>1 1<1              | 1>0 0<0              | 2>3 3<3              | 3>2 2<2              |
//!    3 | 0..2>2 2..4<2        | 0..2>3 2..4<3        | 2..4>0 0..2<0        | 2..4>1 0..2<1        |
//! ```

use super::core_ranks::{Core, Role};
use super::recursive_doubling;
use crate::schedule::Step::{Copy, Recv, RecvReduce, Send};
use crate::schedule::cost::{Load, Work};
use crate::schedule::{Program, Span, input, output, scratch};

/// From the vectors in the input to each core rank's blocks in `sums`, a run as long as the vector.
fn halving_phase(p: &mut Program, core: Core, sums: Span) {
    let n = p.size;
    let (low, high) = ((0, n / 2), (n / 2, n - n / 2));
    let at = |(block, count): (u32, u32)| sums.part(block, count);
    let (place, extra) = match core.role(p.me) {
        Role::Core(place, extra) => (place, extra),
        Role::Extra(first) => {
            let source = input(high.0).run(high.1);
            p.round([
                Send { to: first, source: input(low.0).run(low.1) },
                RecvReduce { from: first, source, target: at(high) },
            ]);
            p.round([Send { to: first, source: at(high) }]);
            return;
        }
    };
    if let Some(second) = extra {
        let source = input(low.0).run(low.1);
        p.round([
            Send { to: second, source: input(high.0).run(high.1) },
            RecvReduce { from: second, source, target: at(low) },
        ]);
        p.round([Recv { from: second, target: at(high) }]);
    }
    let mut summed = extra.is_some();
    for r in (0..core.n_rounds).rev() {
        let width = 1 << r;
        let mine = place & !(width - 1);
        let peer = core.rank(place ^ width);
        let [kept, given] = [mine, mine ^ width].map(|first| core.blocks(first, width));
        let held = |(block, count)| if summed { at((block, count)) } else { input(block).run(count) };
        let (leaving, own) = (held(given), held(kept));
        p.round([Send { to: peer, source: leaving }, RecvReduce { from: peer, source: own, target: at(kept) }]);
        summed = true;
    }
}

/// Halving into the output, doubling in the output.
pub fn all_reduce(p: &mut Program) {
    let core = Core::of(p);
    halving_phase(p, core, output(0).run(p.size));
    match core.role(p.me) {
        Role::Extra(first) => p.round([Recv { from: first, target: output(0).run(p.size) }]),
        Role::Core(place, extra) => {
            recursive_doubling::doubling_phase(p, core, place, 0);
            p.round(extra.map(|to| Send { to, source: output(0).run(p.size) }));
        }
    }
}

/// Halving in scratch; a pair's first rank hands its neighbour the neighbour's block.
pub fn reduce_scatter(p: &mut Program) {
    let core = Core::of(p);
    let sums = scratch(0, 0).run(p.size);
    halving_phase(p, core, sums);
    match core.role(p.me) {
        Role::Extra(first) => p.round([Recv { from: first, target: output(0) }]),
        Role::Core(_, extra) => {
            let own = Copy { source: sums.part(p.me, 1), target: output(0) };
            p.round(extra.map(|to| Send { to, source: sums.part(to, 1) }).into_iter().chain([own]));
        }
    }
}

fn halving_work(n: u32) -> Work {
    let load = recursive_doubling::doubling_load(n);
    let core = Work::steady(f64::from(n.ilog2()), load.folding(load.sent));
    if n.is_power_of_two() {
        return core;
    }
    let half = f64::from(n - n / 2) / f64::from(n);
    Work::steady(2.0, Load::messages(2.0, 2.0 * half).folding(half)).then(core)
}

/// Halving, doubling, and the whole result to those beyond the core.
pub fn all_reduce_work(n: u32) -> Work {
    let core = halving_work(n).then(Work::steady(f64::from(n.ilog2()), recursive_doubling::doubling_load(n)));
    if n.is_power_of_two() {
        return core;
    }
    core.then(Work { latencies: 1.0, path: Load::messages(1.0, 1.0), busiest: Load::default() })
}

/// Halving, and a block to those beyond the core.
pub fn reduce_scatter_work(n: u32) -> Work {
    let block = 1.0 / f64::from(n);
    let copy = Load::default().copying(block);
    let last = match n.is_power_of_two() {
        true => Work { latencies: 0.0, path: copy, busiest: copy },
        false => {
            let latencies = 1.0 - recursive_doubling::latencies_spared(n);
            Work { latencies, path: Load::messages(1.0, block), busiest: copy }
        }
    };
    halving_work(n).then(last)
}
