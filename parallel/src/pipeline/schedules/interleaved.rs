//! Interleaved 1F1B: every rank holds v stages, p apart, so that a micro-batch reaches the last rank v times sooner.
//!
//! The bubble shrinks v times; messages and, by about one micro-batch in v, memory grow. A rank takes a group of
//! micro-batches through one of its stages, the same group through the next, and then the next group.

use super::row::Row;
use super::shape::Shape;
use crate::pipeline::action::{Step, backward, forward};
use crate::pipeline::placement::Placement;
use crate::pipeline::price::StageCost;

pub(super) const ROW: Row = Row {
    name: "interleaved",
    summary: "1F1B over several stages for each rank",
    source: "Narayanan et al. 2021, arXiv 2104.04473, section 2.2.2",
    fits,
    placement: |s| Placement::Loop { n_chunks: s.n_chunks },
    write,
    bubble,
    in_flight: |s, rank| (warm_up(s, rank) + 1).min(s.n_chunks * s.n_micro_batches),
};

/// As Megatron demands: a group that is smaller than the number of ranks would leave ranks without work in the middle.
fn fits(s: Shape) -> Result<(), String> {
    let Shape { n_ranks: p, n_micro_batches: m, n_chunks, group } = s;
    if n_chunks < 2 {
        return Err("it needs at least 2 chunks per rank; with 1 it is one_f_one_b".to_owned());
    }
    if m < p {
        return Err(format!("it needs at least as many micro-batches as ranks, {p}"));
    }
    if !(p <= group && group <= m) {
        return Err(format!("groups of {group} micro-batches must be of {p} (the ranks) to {m} (all)"));
    }
    let left = m % group;
    if 0 < left && left < p {
        let why = format!("{m} micro-batches in groups of {group} leave {left}, which is fewer than the {p} ranks");
        return Err(format!("{why}; take {} or {} micro-batches, or other groups", m - left, m - left + group));
    }
    Ok(())
}

/// The rank's work in one direction: chunk and micro-batch.
fn order(s: Shape) -> Vec<(u32, u32)> {
    let m = s.n_micro_batches;
    let groups = (0..m).step_by(s.group as usize).map(|first| first..m.min(first + s.group));
    groups.flat_map(|group| (0..s.n_chunks).flat_map(move |c| group.clone().map(move |k| (c, k)))).collect()
}

/// Forwards before the first backward: a group through every chunk but the last, and the way to the last rank and back.
fn warm_up(s: Shape, rank: u32) -> u32 {
    (s.n_chunks - 1) * s.group + 2 * (s.n_ranks - 1 - rank)
}

fn write(s: Shape, rank: u32) -> Vec<Step> {
    let order = order(s);
    let forwards = order.iter().map(|&(c, k)| forward(c * s.n_ranks + rank, k));
    let mut backwards = order.iter().map(|&(c, k)| backward((s.n_chunks - 1 - c) * s.n_ranks + rank, k));
    let mut list = Vec::with_capacity(2 * order.len());
    for (step, i) in forwards.zip(0..) {
        list.push(step);
        if i >= warm_up(s, rank) {
            list.extend(backwards.next());
        }
    }
    list.extend(backwards);
    list
}

/// As 1F1B, of stages v times as small.
fn bubble(s: Shape, cost: &StageCost, _: f64) -> Option<f64> {
    Some(f64::from(s.n_ranks - 1) * (cost.forward + cost.backward))
}
