//! Collectives between ranks, from schedules that are proved before they run.

pub mod algorithm;
pub mod collective;
pub mod reduce;
pub mod schedule;
