//! Tensors that know what they are along each axis, so that a forgotten or doubled sum is an error where it happens.
//!
//! The idea and the four kinds are those of `spmd_types` (a checker for PyTorch); here the tags travel with the values.

mod kind;
mod tagged;

pub(crate) use kind::Together;
pub use kind::{Kind, Spread};
pub use tagged::Value;
