//! Inputs whose exact result is known whatever the order of the operations, and the check against it.
//!
//! Every element is a function of (seed, index, rank), so that a rank can compute any other rank's input, and the result
//! of a reduction, without a message. Results are compared bit by bit; only the average of floats may be off by two units
//! in the last place, because the library may multiply or divide at any point.
//!
//! - Integers wrap, and wrapping sums and products form a ring: contributions that cancel around a circle of ranks leave
//!   exactly the value that one of them adds.
//! - Floats add exactly as long as every partial sum is a small whole number times one power of two. The contributions
//!   share a budget, 2 to the precision, that no subset of them can exceed; in narrow types with many ranks most
//!   contributions are therefore zero, and which ranks contribute changes from element to element.
//! - A product of floats is one random value times powers of two whose exponents cancel.

pub mod compare;
pub mod data;
pub mod format;
pub mod hash;
mod minmax;
mod product;
mod sum;

pub use compare::{Mismatch, compare};
pub use data::Data;

#[cfg(test)]
mod tests;
