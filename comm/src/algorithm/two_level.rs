//! Two levels: inside groups of neighbours, and across them, as compositions of other rows.
//!
//! What crosses between groups is a group's share, sent by all its ranks at once, each its own part. The group is the
//! program's `group`: what shares a host, once the topology has said so.
//!
//! The all-reduce in two groups of two for n = 4:
//!
//! ```text
//! all_reduce two_level
//! ranks 4 root 0 chunks 4
//!      | 0                    | 1                    | 2                    | 3                    |
//!    0 | i2..4>1 0..2=i0..2+1 | i0..2>0 2..4=i2..4+0 | i2..4>3 0..2=i0..2+3 | i0..2>2 2..4=i2..4+2 |
//!    1 | 1>2 0+2              | 3>3 2+3              | 0>0 1+0              | 2>1 3+1              |
//!    2 | 0>2 1<2              | 2>3 3<3              | 1>0 0<0              | 3>1 2<1              |
//!    3 | 0..2>1 2..4<1        | 2..4>0 0..2<0        | 0..2>3 2..4<3        | 2..4>2 0..2<2        |
//! ```

use super::ring;
use crate::schedule::Step::{Copy, Recv, RecvReduce, Send};
use crate::schedule::cost::{Load, Work};
use crate::schedule::{Program, View, input, output, scratch};

/// The ranks of this rank's group, and the ranks at the same place in every group; `None` if there is one level only.
fn levels(p: &Program) -> Option<(View, View)> {
    let group = p.group();
    let (place, n_groups) = (p.me % group, p.size / group);
    let inside = View::ranks(p.me - place, 1, group);
    let across = View::ranks(place, group, n_groups);
    (1 < group && 1 < n_groups).then_some((inside, across))
}

/// Reduce-scatter inside, all-reduce across, all-gather inside.
pub fn all_reduce(p: &mut Program) {
    let Some((inside, across)) = levels(p) else { return ring::all_reduce(p) };
    let n_groups = across.size;
    let place = across.rank_first;
    p.within(inside.chunks(0, n_groups), ring::reduce_scatter_phase);
    p.within(across.chunks(place * n_groups, 1).going_on(), ring::all_reduce);
    p.within(inside.chunks(0, n_groups).going_on(), ring::all_gather_phase);
}

/// Blocks of equal place across, then all groups' blocks inside: no block crosses between two groups twice.
pub fn all_gather(p: &mut Program) {
    let Some((inside, across)) = levels(p) else { return ring::all_gather(p) };
    let (me, group, n_groups, place) = (p.me, inside.size, across.size, across.rank_first);
    for r in 0..n_groups - 1 {
        let (leaving, arriving) = (back(me / group, r, n_groups), back(me / group, r + 1, n_groups));
        let source = if r == 0 { input(0) } else { output(leaving * group + place) };
        let own = (r == 0).then_some(Copy { source: input(0), target: output(me) });
        let moves = [
            Send { to: p.peer(i64::from(group)), source },
            Recv { from: p.peer(-i64::from(group)), target: output(arriving * group + place) },
        ];
        p.round(own.into_iter().chain(moves));
    }
    let [next, before] = [1, group - 1].map(|distance| me - place + (place + distance) % group);
    for r in 0..group - 1 {
        let (leaving, arriving) = (back(place, r, group), back(place, r + 1, group));
        let sends = (0..n_groups).map(|g| Send { to: next, source: output(g * group + leaving) });
        let receives = (0..n_groups).map(|g| Recv { from: before, target: output(g * group + arriving) });
        p.round(sends.chain(receives));
    }
}

/// The same backwards: shares of all groups' blocks inside, then sums of equal place across.
pub fn reduce_scatter(p: &mut Program) {
    let Some((inside, across)) = levels(p) else { return ring::reduce_scatter(p) };
    let (me, group, n_groups, place) = (p.me, inside.size, across.size, across.rank_first);
    let [next, before] = [1, group - 1].map(|distance| me - place + (place + distance) % group);
    // Two rows of a slot for each group, in turn; behind them, two slots for what goes across.
    let sum = |r: u32, g: u32, place: u32| scratch(r % 2 * n_groups + g, g * group + place);
    for r in 0..group - 1 {
        let (leaving, arriving) = (back(place, r + 1, group), back(place, r + 2, group));
        let sends = (0..n_groups).map(|g| {
            let source = if r == 0 { input(g * group + leaving) } else { sum(r - 1, g, leaving) };
            Send { to: next, source }
        });
        let receives = (0..n_groups).map(|g| {
            let target = sum(r, g, arriving);
            RecvReduce { from: before, source: input(g * group + arriving), target }
        });
        p.round(sends.chain(receives).collect::<Vec<_>>());
    }
    for r in 0..n_groups - 1 {
        let (leaving, arriving) = (back(me / group, r + 1, n_groups), back(me / group, r + 2, n_groups));
        let own = |g| sum(group - 2, g, place);
        let going = |r: u32, g: u32| scratch(2 * n_groups + r % 2, g * group + place);
        let source = if r == 0 { own(leaving) } else { going(r - 1, leaving) };
        let target = if r + 2 == n_groups { output(0) } else { going(r, arriving) };
        p.round([
            Send { to: p.peer(i64::from(group)), source },
            RecvReduce { from: p.peer(-i64::from(group)), source: own(arriving), target },
        ]);
    }
}

/// `distance` places back, around the end.
fn back(place: u32, distance: u32, size: u32) -> u32 {
    (place + size - distance % size) % size
}

/// Two rings, with the default group: one over the message, one over a group's share of it.
pub fn all_reduce_work(n: u32) -> Work {
    let group = Program::new(0, n, 0, n).group();
    if group == 1 || group == n {
        return ring::all_reduce_work(n);
    }
    let (whole, group, n_groups) = (f64::from(n), f64::from(group), f64::from(n / group));
    let rounds = 2.0 * (group - 1.0) + 2.0 * (n_groups - 1.0);
    let sent = 2.0 * (group - 1.0) / group + 2.0 * (n_groups - 1.0) / whole;
    Work::steady(rounds, Load::messages(rounds, sent).folding(sent / 2.0))
}

/// A message of every group's for each neighbour inside, one for each group across; blocks are sent once.
pub fn all_gather_work(n: u32) -> Work {
    let group = Program::new(0, n, 0, n).group();
    if group == 1 || group == n {
        return ring::all_gather_work(n);
    }
    let (whole, group, n_groups) = (f64::from(n), f64::from(group), f64::from(n / group));
    let messages = n_groups * (group - 1.0) + n_groups - 1.0;
    Work::steady(group + n_groups - 2.0, Load::messages(messages, messages / whole).copying(1.0 / whole))
}

/// The same with folds.
pub fn reduce_scatter_work(n: u32) -> Work {
    let Work { latencies, path, .. } = all_gather_work(n);
    Work::steady(latencies, path.folding(path.sent))
}
