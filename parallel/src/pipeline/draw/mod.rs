//! Draws priced schedules: ranks as rows, time from left to right.

mod svg;
#[cfg(test)]
mod tests;
mod timeline;

pub use svg::svg;
pub use timeline::timeline;
