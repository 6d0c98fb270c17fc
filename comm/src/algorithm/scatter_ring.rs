//! Scatter and ring: a broadcast in which the root sends each byte about twice, whatever the number of ranks.
//!
//! Barnett, Gupta, Payne, Shuler, van de Geijn, Watts: "Interprocessor collective communication library (InterCom)",
//! 1994. The root deals the message out, a chunk for each rank; then the chunks go around the ring.
//!
//! For n = 3:
//!
//! ```text
//! broadcast scatter_ring
//! ranks 3 root 0 chunks 3
//!      | 0                    | 1       | 2   |
//!    0 | i1>1 i2>2 0..3=i0..3 | 1<0     | 2<0 |
//!    1 | i0>1                 | 1>2 0<0 | 1<1 |
//!    2 | i2>1                 | 0>2 2<0 | 0<1 |
//! ```

use crate::schedule::Step::{Copy, Recv, Send};
use crate::schedule::cost::{Load, Work};
use crate::schedule::{Program, input, output};

/// One chunk to each rank, then all chunks to all. Nobody sends to the root, which has them.
pub fn broadcast(p: &mut Program) {
    let (n, is_root) = (p.size, p.me == p.root);
    if is_root {
        let copy = Copy { source: input(0).run(n), target: output(0).run(n) };
        let sends = (1..n).map(|place| p.rank_at(place)).map(|to| Send { to, source: input(to) });
        p.round(sends.chain([copy]).collect::<Vec<_>>());
    } else {
        p.round([Recv { from: p.root, target: output(p.me) }]);
    }
    for r in 0..i64::from(n) - 1 {
        let (leaving, arriving) = (p.peer(-r), p.peer(-1 - r));
        let source = if is_root { input(leaving) } else { output(leaving) };
        let send = (p.peer(1) != p.root).then(|| Send { to: p.peer(1), source });
        let receive = (!is_root).then(|| Recv { from: p.peer(-1), target: output(arriving) });
        p.round([send, receive].into_iter().flatten());
    }
}

/// Twice the message through the root's port. The last chunk is dealt out while the first ones go around, so only the
/// ring's latencies count.
pub fn broadcast_work(n: u32) -> Work {
    let others = f64::from(n - 1);
    Work::steady(others, Load::messages(2.0 * others, 2.0 * others / f64::from(n)).copying(1.0))
}
