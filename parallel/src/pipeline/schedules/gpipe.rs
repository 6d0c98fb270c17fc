//! GPipe: all forwards, then all backwards.
//!
//! Simple, and every activation lives until the end of the forwards. Backwards run in the order of the forwards, so
//! that weights' gradients are added up in the order in which one process would add them. (The paper draws them
//! reversed.)
//!
//! ```text
//! 0 | 0F0 0F1 0F2 .   .   .   .   .   .   0B0 === 0B1 === 0B2 ===
//! 1 | .   1F0 1F1 1F2 .   .   .   1B0 === 1B1 === 1B2 === .   .
//! 2 | .   .   2F0 2F1 2F2 2B0 === 2B1 === 2B2 === .   .   .   .
//! ```

use super::row::{Row, one_chunk};
use super::shape::{Shape, any};
use crate::pipeline::action::{Step, backward, forward};
use crate::pipeline::price::StageCost;

pub(super) const ROW: Row = Row {
    name: "gpipe",
    summary: "all forwards, then all backwards",
    source: "Huang et al. 2019, arXiv 1811.06965",
    fits: any,
    placement: one_chunk,
    write,
    bubble,
    in_flight: |s, _| s.n_micro_batches,
};

fn write(s: Shape, rank: u32) -> Vec<Step> {
    let all = 0..s.n_micro_batches;
    all.clone().map(|k| forward(rank, k)).chain(all.map(|k| backward(rank, k))).collect()
}

/// The first micro-batch takes p - 1 forwards to reach the last stage, and p - 1 backwards to come back.
fn bubble(s: Shape, cost: &StageCost, _: f64) -> Option<f64> {
    Some(f64::from(s.n_ranks - 1) * (cost.forward + cost.backward))
}
