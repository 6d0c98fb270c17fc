//! What the table says of a schedule, and the schedule that follows from it.

use super::shape::{Misfit, Shape};
use crate::pipeline::action::Step;
use crate::pipeline::placement::Placement;
use crate::pipeline::price::StageCost;
use crate::pipeline::schedule::Schedule;

/// One schedule.
///
/// The formulas are for stages that all cost the same, and for sends that take no time.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The schedule's name.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// Where it is described.
    pub source: &'static str,
    /// Whether it fits, or what it demands. Called with at least one rank, micro-batch and chunk.
    pub fits: fn(Shape) -> Result<(), String>,
    /// Which rank holds which stage.
    pub placement: fn(Shape) -> Placement,
    /// Writes the list of one rank.
    pub write: fn(Shape, u32) -> Vec<Step>,
    /// How long the rank that idles most is idle in one step, in the unit of the costs of *one* stage; the last
    /// argument is the time of an overlapped pair. `None` where no closed form is known to be exact.
    pub bubble: fn(Shape, &StageCost, f64) -> Option<f64>,
    /// The most activations that a rank holds, in activations of one stage for one micro-batch.
    pub in_flight: fn(Shape, u32) -> u32,
}

impl Row {
    /// Whether the schedule fits.
    ///
    /// # Errors
    ///
    /// What it demands.
    pub fn check_shape(&self, shape: Shape) -> Result<(), Misfit> {
        let fits = match shape {
            Shape { n_ranks: 0, .. } => Err("there must be a rank".to_owned()),
            Shape { n_micro_batches: 0, .. } => Err("there must be a micro-batch".to_owned()),
            Shape { n_chunks: 0, .. } => Err("a rank must hold a chunk".to_owned()),
            _ => (self.fits)(shape),
        };
        fits.map_err(|why| Misfit { name: self.name, shape, why })
    }

    /// The schedule for that shape.
    ///
    /// # Errors
    ///
    /// When it does not fit.
    pub fn schedule(&self, shape: Shape) -> Result<Schedule, Misfit> {
        self.check_shape(shape)?;
        let ranks = (0..shape.n_ranks).map(|rank| (self.write)(shape, rank)).collect();
        Ok(Schedule { placement: (self.placement)(shape), n_micro_batches: shape.n_micro_batches, ranks })
    }
}

pub(super) fn one_chunk(_: Shape) -> Placement {
    Placement::Loop { n_chunks: 1 }
}
