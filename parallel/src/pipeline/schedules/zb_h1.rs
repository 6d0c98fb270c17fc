//! ZB-H1: 1F1B with the weights' gradients put off, which leaves a third of the bubble at the same memory.
//!
//! Only the input's gradient is waited for, so the weights' can fill what would be idle. Rank r puts off r of them in
//! its steady phase: then every rank holds p activations, as rank 0 does in 1F1B, and ends with r + 1 or more of them.
//! The order is written by hand: a greedy one (input's gradient, then forward, then weights' gradient, at most p
//! activations) is slower by up to (p - 1) / 2.

use super::row::{Row, one_chunk};
use super::shape::{Shape, any};
use crate::pipeline::action::{Step, forward, input, weight};
use crate::pipeline::price::StageCost;

pub(super) const ROW: Row = Row {
    name: "zb_h1",
    summary: "1F1B with weights' gradients put off, at the memory of 1F1B",
    source: "Qi et al. 2024, arXiv 2401.10241, section 2.1",
    fits: any,
    placement: one_chunk,
    write,
    bubble,
    in_flight: |s, _| s.n_ranks.min(s.n_micro_batches),
};

fn write(s: Shape, rank: u32) -> Vec<Step> {
    let m = s.n_micro_batches;
    let warm_up = (s.n_ranks - 1 - rank).min(m);
    let mut weights = (0..m).map(|k| weight(rank, k));
    let mut list: Vec<Step> = (0..warm_up).map(|k| forward(rank, k)).collect();
    for k in 0..m {
        let is_steady = k < m - warm_up;
        list.extend(is_steady.then(|| forward(rank, warm_up + k)));
        list.push(input(rank, k));
        if !is_steady || k >= rank {
            list.extend(weights.next());
        }
    }
    list.extend(weights);
    list
}

/// The paper's (p - 1)(F + I - W): what 1F1B idles, less two weights' gradients for each rank.
fn bubble(s: Shape, cost: &StageCost, _: f64) -> Option<f64> {
    let fills = cost.weight <= cost.forward.min(cost.input);
    (fills && s.n_micro_batches >= s.n_ranks)
        .then(|| f64::from(s.n_ranks - 1) * (cost.forward + cost.input - cost.weight))
}
