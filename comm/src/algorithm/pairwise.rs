//! Pairwise: in round r each rank sends to the rank r places on and hears from the rank r places back.
//!
//! Every block goes straight from its owner to its reader, so nothing is sent twice and blocks may differ in length.
//!
//! The all-to-all for n = 4:
//!
//! ```text
//! all_to_all pairwise
//! ranks 4 root 0 chunks 4
//!      | 0             | 1             | 2             | 3             |
//!    0 | 0=i0 i1>1 3<3 | 1=i1 i2>2 0<0 | 2=i2 i3>3 1<1 | 3=i3 i0>0 2<2 |
//!    1 | i2>2 2<2      | i3>3 3<3      | i0>0 0<0      | i1>1 1<1      |
//!    2 | i3>3 1<1      | i0>0 2<2      | i1>1 3<3      | i2>2 0<0      |
//! ```

use crate::schedule::Step::{Copy, Recv, RecvReduce, Send};
use crate::schedule::cost::{Load, Work};
use crate::schedule::{Program, input, output, scratch};

/// Each block goes straight to its reader, one per round. Not in place: a block would overwrite one not yet sent.
pub fn all_to_all(p: &mut Program) {
    for r in 1..i64::from(p.size) {
        let (to, from) = (p.peer(r), p.peer(-r));
        let own = (r == 1).then(|| Copy { source: input(p.me), target: output(p.me) });
        let moves = [Send { to, source: input(to) }, Recv { from, target: output(from) }];
        p.round(own.into_iter().chain(moves));
    }
}

/// The same, in place: in each round two ranks swap blocks with each other, through a slot of scratch.
///
/// Rank `i` swaps with rank `r - i` in round `r`. What arrived is put where it belongs one round later, when the block
/// that lay there has left.
pub fn exchange(p: &mut Program) {
    let mut landed = None;
    for r in 0..p.size {
        let peer = (r + (p.size - p.me)) % p.size;
        let settle = landed.take();
        if peer == p.me {
            p.round(settle.into_iter().chain([Copy { source: input(peer), target: output(peer) }]));
            continue;
        }
        let slot = scratch(r % 2, peer);
        let swap = [Send { to: peer, source: input(peer) }, Recv { from: peer, target: slot }];
        p.round(settle.into_iter().chain(swap));
        landed = Some(Copy { source: slot, target: output(peer) });
    }
    p.round(landed);
}

/// Each rank hears every other rank's share of its block, one per round, and folds it in.
pub fn reduce_scatter(p: &mut Program) {
    for r in 1..i64::from(p.size) {
        let (to, from) = (p.peer(r), p.peer(-r));
        let source = if r == 1 { input(p.me) } else { output(0) };
        p.round([Send { to, source: input(to) }, RecvReduce { from, source, target: output(0) }]);
    }
}

/// A message to every other rank, one after another.
pub fn all_to_all_work(n: u32) -> Work {
    let n = f64::from(n);
    Work::steady(n - 1.0, Load::messages(n - 1.0, (n - 1.0) / n).copying(1.0 / n))
}

/// The same, with a round in which ranks in turn have no peer; what arrived last is copied at the end.
pub fn exchange_work(n: u32) -> Work {
    let Work { busiest, .. } = all_to_all_work(n);
    let (block, n_rounds) = (1.0 / f64::from(n), if n == 2 { 1.0 } else { f64::from(n) });
    let path = Load::messages(n_rounds, n_rounds * block).copying(if n == 2 { 1.0 } else { block });
    Work { latencies: n_rounds, path, busiest: busiest.copying(1.0) }
}

/// A share of every other rank, one after another, with folds.
pub fn reduce_scatter_work(n: u32) -> Work {
    let n = f64::from(n);
    Work::steady(n - 1.0, Load::messages(n - 1.0, (n - 1.0) / n).folding((n - 1.0) / n))
}
