//! The end of a training step, in the one order that is right: agree on overflow, take the norm, clip, update, publish.

use super::norm::{Clip, gradient_norm};
use super::ownership::Ownership;
use super::update::{Optimizer, Step};
use crate::error::{Error, Result};
use crate::mesh::Mesh;
use crate::precision::{LossScaler, overflowed};
use crate::state::State;

/// How a step ends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ending {
    /// The learning rate.
    pub learning_rate: f64,
    /// The number of tokens that count in the whole batch, on all ranks together.
    pub tokens: f64,
    /// How large the norm of the gradients' mean may be.
    pub clip: Option<Clip>,
}

/// How a step ended, on all ranks alike.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Outcome {
    /// The values are new.
    Updated {
        /// The norm of the gradients' mean before clipping, if there was a limit.
        norm: Option<f64>,
    },
    /// Some rank's gradients overflowed: values, moments and the number of updates are what they were.
    Skipped,
}

/// Ends a step whose micro-batches are all computed: waits for the gradients, updates the values and begins the next one. All
/// ranks of the mesh call it together.
///
/// With a scaler, the losses must have been multiplied by its scale, and if a gradient is not finite on any rank, all ranks
/// skip the update.
///
/// # Errors
/// A collective fails, a number of `ending` makes no sense, or without a scaler the norm is not finite (the update hasn't been
/// made then).
pub fn end_step(
    mesh: &Mesh,
    ownership: &Ownership,
    state: &dyn State,
    optimizer: &mut Optimizer,
    scaler: Option<&mut LossScaler>,
    ending: &Ending,
) -> Result<Outcome> {
    state.finish_gradients()?;
    let scale = scaler.as_ref().map_or(1.0, |scaler| scaler.scale());
    if let Some(scaler) = scaler {
        let overflow = overflowed(mesh, state)?;
        scaler.update(overflow);
        if overflow.is_some() {
            state.publish()?;
            return Ok(Outcome::Skipped);
        }
    }
    let divisor = ending.tokens * scale;
    let (mut clip_factor, mut norm) = (1.0, None);
    if let Some(clip) = ending.clip {
        let found = gradient_norm(mesh, ownership, state, clip.norm)? / divisor;
        if !found.is_finite() {
            let steps = optimizer.count().steps;
            return Err(Error::invalid(format!("after {steps} updates the norm of the gradients is {found}")));
        }
        (clip_factor, norm) = (clip.factor(found), Some(found));
    }
    optimizer.step(state, &Step { learning_rate: ending.learning_rate, divisor, clip_factor })?;
    state.publish()?;
    Ok(Outcome::Updated { norm })
}
