//! Pipeline parallel: a model cut into stages, and the order in which micro-batches pass through them.
//!
//! A schedule is data: for every rank a list of actions such as `2F0`. One small function per schedule writes it, one
//! row of a table names it ([`SCHEDULES`]), and the check, the transfers between ranks, the proof that nobody waits for
//! ever, the price and the drawing follow. A table from a file goes the same way. Nothing here knows a tensor, a thread
//! or a clock.
//!
//! ```
//! use paceline_parallel::pipeline::{Shape, price, prove, schedule_row, text};
//! use paceline_parallel::pipeline::price::Costs;
//!
//! let schedule = schedule_row("one_f_one_b").unwrap().schedule(Shape::new(4, 8))?;
//! let first: Vec<String> = schedule.ranks[2][..4].iter().map(|step| step.to_string()).collect();
//! assert_eq!(first, ["2F0", "2F1", "2B0", "2F2"]);
//! assert_eq!(prove(&schedule)?.n_transfers, 2 * 3 * 8);
//!
//! let price = price::price(&schedule, &Costs::even(schedule.n_stages()))?;
//! assert_eq!((price.makespan, price.ranks[0].in_flight), (33.0, 4));
//! assert_eq!(text::parse(&text::write(&schedule))?, schedule);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `docs/pipeline.md` describes every schedule and shows how to add one.

mod action;
pub mod check;
mod cursor;
pub mod draw;
pub mod lower;
pub mod partition;
mod placement;
pub mod price;
#[cfg(feature = "candle")]
mod run;
mod schedule;
mod schedules;
pub mod text;

pub use action::{Action, Kind, Step};
pub use check::{Proof, check, prove};
pub use cursor::ParseError;
pub use lower::{Lowered, Payload, Transfer, lower};
pub use placement::Placement;
#[cfg(feature = "candle")]
pub use run::{Pipeline, Report, Stage, Ties, Wire};
pub use schedule::Schedule;
pub use schedules::{Misfit, Row, SCHEDULES, Shape, schedule_row};
