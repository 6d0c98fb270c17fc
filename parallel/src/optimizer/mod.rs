//! The end of a step: the gradients' norm, clipping, and what an optimizer makes of them.
//!
//! Gradients are sums. They are divided, once, by the number of tokens that count in the whole batch, and clipped, in the
//! same pass over memory that updates the values. Nothing here knows how a state is spread: it sees
//! [`Shard`](crate::state::Shard)s.

mod adamw;
mod group;
mod kernel;
mod norm;
mod ownership;
mod schedule;
mod sgd;
mod step;
mod update;

pub use adamw::AdamW;
pub use group::{GroupOptions, is_matrix};
pub use kernel::{Slices, Stretched, Update};
pub use norm::{Clip, Norm, gradient_norm};
pub use ownership::Ownership;
pub use schedule::{CURVES, Curve, Phase, Schedule};
pub use sgd::{Momentum, Sgd};
pub use step::{Ending, Outcome, end_step};
pub use update::{Count, Optimizer, Rule, Step};
