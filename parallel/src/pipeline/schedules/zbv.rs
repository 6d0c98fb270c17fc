//! ZB-V: no idling between a rank's first action and its last, at the memory of 1F1B.
//!
//! Every rank holds two stages of half the size, placed down the ranks and back up. The last stage is on rank 0, so the
//! first backward begins where the first forward did, and activations of the second half are freed soon: each rank
//! holds
//! 2p of half a stage's.

use super::row::Row;
use super::shape::{Shape, any};
use crate::pipeline::action::{Action, Kind, Step};
use crate::pipeline::placement::Placement;
use crate::pipeline::price::StageCost;

pub(super) const ROW: Row = Row {
    name: "zbv",
    summary: "no idling between a rank's first action and its last, at the memory of 1F1B; V placement",
    source: "Qi et al. 2024, arXiv 2401.10241, section 6",
    fits: any,
    placement: |_| Placement::V,
    write,
    bubble,
    in_flight: |s, rank| (2 * s.n_ranks - 1 - rank).min(s.n_micro_batches) + (rank + 1).min(s.n_micro_batches),
};

/// The rank's list while it is written: how many of each kind each of its two stages has had.
struct Writer {
    list: Vec<Step>,
    stages: [u32; 2],
    counts: [[u32; 4]; 2],
}

impl Writer {
    /// The next forward (and so on) of the stage on the way down, 0, or up, 1.
    fn push(&mut self, leg: usize, kinds: &[Kind]) {
        for &kind in kinds {
            let count = &mut self.counts[leg][kind as usize];
            self.list.push(Step::One(Action { stage: self.stages[leg], kind, micro_batch: *count }));
            *count += 1;
        }
    }

    fn count(&self, leg: usize, kind: Kind) -> u32 {
        self.counts[leg][kind as usize]
    }
}

/// Written for at least as many micro-batches as fill the pipeline; those that don't exist are struck out.
fn write(s: Shape, rank: u32) -> Vec<Step> {
    use Kind::{Forward, Input, Weight};
    let p = s.n_ranks;
    let m = s.n_micro_batches.max(2 * p - 1);
    let mut w = Writer { list: Vec::new(), stages: [rank, 2 * p - 1 - rank], counts: [[0; 4]; 2] };
    for _ in 0..2 * (p - rank) - 1 {
        w.push(0, &[Forward]);
    }
    for _ in 0..rank {
        w.push(1, &[Forward]);
        w.push(0, &[Forward]);
    }
    for _ in 0..p - rank {
        w.push(1, &[Forward, Input, Weight]);
    }
    while w.count(1, Forward) < m {
        if w.count(0, Forward) < m {
            w.push(0, &[Forward]);
        }
        w.push(0, &[Input, Weight]);
        w.push(1, &[Forward, Input, Weight]);
    }
    for _ in 0..rank {
        w.push(0, &[Input]);
        w.push(1, &[Input]);
    }
    for _ in 0..p - rank {
        w.push(0, &[Input, Weight]);
    }
    for leg in [1, 0] {
        while w.count(leg, Weight) < m {
            w.push(leg, &[Weight]);
        }
    }
    w.list.retain(|step| step.actions().all(|action| action.micro_batch < s.n_micro_batches));
    w.list
}

/// The skew alone.
fn bubble(s: Shape, cost: &StageCost, _: f64) -> Option<f64> {
    let is_even = cost.forward == cost.input && cost.weight <= cost.input;
    (is_even && s.n_micro_batches >= 2 * s.n_ranks - 1).then(|| f64::from(s.n_ranks - 1) * cost.forward)
}
