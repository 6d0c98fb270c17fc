//! The public interface on every kind of link.
//!
//! `rows` is the large part: every row, type, operator, number of ranks and link against a plain fold. By default a seeded
//! sample of it runs that holds every pair named in `sample`; `PACELINE_FULL=1` runs the product, and `PACELINE_SEED` draws
//! another sample. `PACELINE_BIG=1` adds a call of more than 2^31 elements.

mod aborts;
mod big;
mod boards;
mod floats;
mod groups;
mod messages;
mod mixed;
mod options;
mod rows;
mod runner;
mod sample;
mod splits;
mod started;
mod threads;
mod typed;
mod uneven;
mod windows;
