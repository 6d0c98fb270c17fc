//! ZB-H2: as ZB-H1 with twice the forwards before the first backward, so that no rank is idle between its first action
//! and its last.
//!
//! It takes 2p - 1 activations on every rank. What is left of the bubble is the skew: rank r begins r forwards late and
//! ends r late. It is paid once in a training, not once in a step, if the optimizer doesn't hold all ranks back.

use super::row::{Row, one_chunk};
use super::shape::{Shape, any};
use crate::pipeline::action::{Step, forward, input, weight};
use crate::pipeline::price::StageCost;

pub(super) const ROW: Row = Row {
    name: "zb_h2",
    summary: "no idling between a rank's first action and its last, at twice the memory of 1F1B",
    source: "Qi et al. 2024, arXiv 2401.10241, section 2.2",
    fits: any,
    placement: one_chunk,
    write,
    bubble,
    in_flight: |s, _| (2 * s.n_ranks - 1).min(s.n_micro_batches),
};

fn write(s: Shape, rank: u32) -> Vec<Step> {
    let m = s.n_micro_batches;
    let warm_up = (2 * (s.n_ranks - rank) - 1).min(m);
    let mut weights = (0..m).map(|k| weight(rank, k));
    let mut list: Vec<Step> = (0..warm_up).map(|k| forward(rank, k)).collect();
    for k in 0..m {
        let is_steady = k < m - warm_up;
        list.push(input(rank, k));
        if !is_steady || k >= 2 * rank {
            list.extend(weights.next());
        }
        list.extend(is_steady.then(|| forward(rank, warm_up + k)));
    }
    list.extend(weights);
    list
}

/// The skew alone.
fn bubble(s: Shape, cost: &StageCost, _: f64) -> Option<f64> {
    let fills = cost.weight <= cost.input && cost.input <= cost.forward;
    (fills && s.n_micro_batches >= 2 * s.n_ranks - 1).then(|| f64::from(s.n_ranks - 1) * cost.forward)
}
