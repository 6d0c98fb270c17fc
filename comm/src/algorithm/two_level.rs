//! Two levels: inside groups of neighbours, and across them, as compositions of other rows.
//!
//! What crosses between groups is a group's share, sent by all its ranks at once, each its own part. The group is the
//! program's `group`: what shares a host, once the topology has said so.

use super::ring;
use crate::schedule::cost::{Load, Work};
use crate::schedule::{Program, View};

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
