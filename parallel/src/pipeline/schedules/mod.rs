//! The schedules: one file each, and one table.
//!
//! A row names a function that writes one rank's list. The check, the proof, the price, the drawing and the tests
//! follow from the row. To add a schedule, add a file and a row.

mod dual_pipe;
mod dual_pipe_v;
mod eight_steps;
mod gpipe;
mod interleaved;
mod one_f_one_b;
mod row;
mod shape;
#[cfg(test)]
mod tests;
mod zb_h1;
mod zb_h2;
mod zbv;

pub use row::Row;
pub use shape::{Misfit, Shape};

/// Every schedule.
pub static SCHEDULES: [Row; 8] = [
    gpipe::ROW,
    one_f_one_b::ROW,
    interleaved::ROW,
    zb_h1::ROW,
    zb_h2::ROW,
    zbv::ROW,
    dual_pipe::ROW,
    dual_pipe_v::ROW,
];

/// The row of that name.
#[must_use]
pub fn schedule_row(name: &str) -> Option<&'static Row> {
    SCHEDULES.iter().find(|row| row.name == name)
}
