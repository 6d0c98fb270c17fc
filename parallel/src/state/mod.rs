//! The training state of a model, however it is spread: where gradients come together and optimizers find their numbers.
//!
//! A [`State`] keeps a model's parameters. Gradients go in one by one; what comes out are [`Shard`]s, flat vectors that this
//! rank updates. So optimizers, norms and checkpoints don't know how the state is spread, and who spreads it knows no
//! optimizer.

mod local;
mod numbers;
mod shard;

pub use local::Local;
pub use numbers::Numbers;
pub use shard::{Segment, Shard};

use crate::data::{Overlap, Progress};
use crate::error::Result;
use crate::mesh::Axis;
use crate::parameter::Parameter;

/// The training state of a model: parameters, their gradients, and the numbers that an optimizer updates.
///
/// A step goes: for each micro-batch forward and backward, with [`State::last_micro_batch`] before the last one that this rank
/// computes; [`State::finish_gradients`]; [`State::visit`] with the optimizer; [`State::publish`].
pub trait State: Send + Sync {
    /// The parameters, in the model's order.
    fn parameters(&self) -> &[Parameter];

    /// The gradients that come from now on complete the step's: what has to be sent may be sent as it becomes complete.
    fn last_micro_batch(&self);

    /// Waits until the step's gradients are the sums over all ranks that have computed any. A rank that has had no
    /// micro-batch calls it all the same.
    ///
    /// # Errors
    /// A collective fails.
    fn finish_gradients(&self) -> Result<()>;

    /// Goes through the shards that this rank updates, in the same order each time.
    ///
    /// # Errors
    /// Those of `each`, at once.
    fn visit(&self, each: &mut dyn FnMut(&mut Shard) -> Result<()>) -> Result<()>;

    /// Tells, before a step, how many micro-batches each rank has. It must be called on all ranks where these numbers may
    /// differ: some states send something in each micro-batch, and a rank that has fewer must take part all the same.
    ///
    /// # Errors
    /// The progress is that of other ranks than these.
    fn begin_step(&self, progress: &Progress) -> Result<()> {
        let _ = progress;
        Ok(())
    }

    /// What became of everything that it has sent beside the computing so far; `None` if it never sends anything so.
    fn sending(&self) -> Option<Overlap> {
        None
    }

    /// Axes along which the ranks' shards are different parts of the same parameters: along all others they are the same,
    /// where the parameters are.
    fn distinct_along(&self) -> Vec<Axis>;

    /// Gives the parameters their new values, forgets the gradients, and begins the next step.
    ///
    /// # Errors
    /// A collective fails.
    fn publish(&self) -> Result<()>;
}
