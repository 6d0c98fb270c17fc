//! Parameters: named parts of logical tensors, whose values come when they are needed and whose gradients go where they belong.
//!
//! A layer never puts a parameter into candle's graph. It asks for the value ([`Usage::value`]) in the forward pass and again
//! in the backward pass, and hands the gradient over ([`Usage::gradient`]). So whoever keeps a parameter (a [`Keeper`]) may
//! have it elsewhere in between, learns of each gradient at once, and knows when the last use has given its part.

mod builder;
mod held;
mod init;
mod part;

pub use builder::{Builder, ParameterOptions};
pub use held::{Keeper, Parameter, Usage};
pub use init::Init;
pub use part::Part;
