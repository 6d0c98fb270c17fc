//! DualPipeV: DualPipe cut in half: one copy of the model, down the ranks and back up.
//!
//! The two streams of DualPipe become the two stages of a rank, so parameters aren't doubled.

use super::eight_steps::{Place, Stream, eight_steps};
use super::row::Row;
use super::shape::{Shape, any};
use crate::pipeline::action::Step;
use crate::pipeline::placement::Placement;
use crate::pipeline::price::StageCost;

pub(super) const ROW: Row = Row {
    name: "dual_pipe_v",
    summary: "one copy of the model in V placement, forwards overlapped with backwards",
    source: "Qi et al. 2025 (cut-in-half); github.com/deepseek-ai/DualPipe, DualPipeV",
    fits,
    placement: |_| Placement::V,
    write,
    bubble,
    in_flight: |s, _| 2 * s.n_ranks + 1,
};

fn fits(s: Shape) -> Result<(), String> {
    if s.n_micro_batches < 2 * s.n_ranks {
        return Err(format!("it needs at least 2 micro-batches per rank, {}", 2 * s.n_ranks));
    }
    any(s)
}

fn write(s: Shape, rank: u32) -> Vec<Step> {
    let (p, per_stream) = (s.n_ranks, s.n_micro_batches);
    let (down, up) = (Stream { stage: rank, first: 0 }, Stream { stage: 2 * p - 1 - rank, first: 0 });
    eight_steps(Place { n: p, i: rank, per_stream }, down, up)
}

/// DualPipe's, of as many stages and stages of half the size.
fn bubble(s: Shape, cost: &StageCost, pair: f64) -> Option<f64> {
    let bubble = f64::from(s.n_ranks - 1) * (pair + cost.backward - 3.0 * cost.weight);
    (cost.forward == cost.input).then_some(bubble)
}
