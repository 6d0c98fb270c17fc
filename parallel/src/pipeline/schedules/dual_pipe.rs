//! DualPipe: two copies of the model, mirrored, and micro-batches from both ends, so that forwards and backwards
//! overlap.
//!
//! A forward of one direction and a backward of the other are one step, in which one's transfers (of experts' tokens)
//! hide behind the other's arithmetic. It takes twice the parameters. Micro-batches `0..m/2` run down the ranks, the
//! others up.

use super::eight_steps::{Place, Stream, eight_steps};
use super::row::Row;
use super::shape::{Shape, any};
use crate::pipeline::action::Step;
use crate::pipeline::placement::Placement;
use crate::pipeline::price::StageCost;

pub(super) const ROW: Row = Row {
    name: "dual_pipe",
    summary: "two mirrored copies of the model, micro-batches from both ends, forwards overlapped with backwards",
    source: "DeepSeek-AI 2024, arXiv 2412.19437, section 3.2.1",
    fits,
    placement: |_| Placement::Mirrored,
    write,
    bubble,
    in_flight: |s, _| s.n_ranks + 1,
};

fn fits(s: Shape) -> Result<(), String> {
    let (p, m) = (s.n_ranks, s.n_micro_batches);
    if p % 2 != 0 {
        return Err("the number of ranks must be even, for the two directions meet between two ranks".to_owned());
    }
    if m % 2 != 0 {
        return Err(format!("half of the micro-batches enter at either end; take {} or {}", m - 1, m + 1));
    }
    if m < 2 * p {
        return Err(format!("it needs at least 2 micro-batches per rank, {}", 2 * p));
    }
    any(s)
}

fn write(s: Shape, rank: u32) -> Vec<Step> {
    let (p, half) = (s.n_ranks, s.n_micro_batches / 2);
    let down = Stream { stage: rank, first: 0 };
    let up = Stream { stage: p - 1 - rank, first: half };
    let (i, near, far) = if rank < p / 2 { (rank, down, up) } else { (p - 1 - rank, up, down) };
    eight_steps(Place { n: p / 2, i, per_stream: half }, near, far)
}

/// DeepSeek's (p/2 - 1)(F&B + B - 3W), where B is the whole backward.
fn bubble(s: Shape, cost: &StageCost, pair: f64) -> Option<f64> {
    let bubble = f64::from(s.n_ranks / 2 - 1) * (pair + cost.backward - 3.0 * cost.weight);
    (cost.forward == cost.input).then_some(bubble)
}
