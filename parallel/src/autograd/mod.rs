//! What candle's backward pass needs to be told: own differentiable functions, seeds, work that waits.
//!
//! A function computes its output from tensors without a graph, and says what the gradients are when candle asks. So it may
//! use whatever it likes in either direction (collectives, parameters that come and go), and candle's graph holds nothing
//! but the values between functions. No parameter is ever a part of the graph: see [`crate::parameter`].

mod deferred;
mod function;
mod recompute;
mod seed;

pub(crate) use deferred::is_deferring;
pub use deferred::{WeightWork, defer_weight_gradients, weight_gradient};
pub use function::{Gradients, Output, function, is_recording, without_gradients};
pub use recompute::recompute;
pub use seed::{backward_from, gradient_of};
