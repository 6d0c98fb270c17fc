//! Every row, type, operator, number of ranks and kind of link, against a plain fold, through the public interface.
//!
//! By default a seeded sample runs that holds every pair named in `sample.rs`; `PACELINE_FULL=1` runs the product, and
//! `PACELINE_SEED` draws another sample.

mod rows;
mod runner;
mod sample;
