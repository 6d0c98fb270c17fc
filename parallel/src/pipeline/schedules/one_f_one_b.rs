//! 1F1B: a backward as soon as there is one, so that rank r holds p - r activations, however many micro-batches there
//! are.
//!
//! As slow as GPipe, and bounded in memory.

use super::row::{Row, one_chunk};
use super::shape::{Shape, any};
use crate::pipeline::action::{Step, backward, forward};
use crate::pipeline::price::StageCost;

pub(super) const ROW: Row = Row {
    name: "one_f_one_b",
    summary: "one forward, one backward, after a warm-up of forwards",
    source: "Narayanan et al. 2019 (PipeDream); Narayanan et al. 2021, arXiv 2104.04473, section 2.2.1",
    fits: any,
    placement: one_chunk,
    write,
    bubble,
    in_flight: |s, rank| (s.n_ranks - rank).min(s.n_micro_batches),
};

fn write(s: Shape, rank: u32) -> Vec<Step> {
    let m = s.n_micro_batches;
    let warm_up = (s.n_ranks - 1 - rank).min(m);
    let mut list: Vec<Step> = (0..warm_up).map(|k| forward(rank, k)).collect();
    for k in 0..m - warm_up {
        list.extend([forward(rank, warm_up + k), backward(rank, k)]);
    }
    list.extend((m - warm_up..m).map(|k| backward(rank, k)));
    list
}

fn bubble(s: Shape, cost: &StageCost, _: f64) -> Option<f64> {
    Some(f64::from(s.n_ranks - 1) * (cost.forward + cost.backward))
}
