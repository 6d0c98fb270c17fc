//! Models that are cut among ranks against the same model on one rank: losses, gradients, collectives, and what must fail.

#![cfg(feature = "candle")]

mod counts;
mod differences;
mod equal;
mod model;
mod mutants;
mod stages;
