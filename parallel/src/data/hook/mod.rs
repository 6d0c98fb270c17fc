//! What buckets of gradients go through on their way: a plain sum, or something that sends less.

mod ordered;
mod plain;
mod power_sgd;
mod rounded;

pub use ordered::Ordered;
pub use plain::Plain;
pub use power_sgd::{PowerSgd, PowerSgdOptions};
pub use rounded::Rounded;

use crate::error::Result;
use crate::group::Group;
use crate::state::{Numbers, Segment};

/// Adds the ranks' buckets.
///
/// All ranks start the same buckets in the same order, and then finish them in that order. So `start` mustn't wait for other
/// ranks, which may still compute; `finish` may call collectives.
pub trait CommHook: Send + Sync {
    /// Begins the reduction of a bucket. `segments` say what lies where in it.
    ///
    /// # Errors
    /// The collective can't be started.
    fn start(&self, segments: &[Segment], gradients: Numbers, group: &Group) -> Result<Box<dyn Reduction>>;
}

/// A reduction that was started.
pub trait Reduction: Send {
    /// Whether `finish` would not wait.
    fn is_ready(&self) -> bool;

    /// Waits for the sum, which is the same on all ranks.
    ///
    /// # Errors
    /// The collective fails.
    fn finish(self: Box<Self>) -> Result<Numbers>;
}
