//! Draws priced schedules: ranks as rows, time from left to right.

mod svg;
mod timeline;

pub use svg::svg;
pub use timeline::timeline;
