//! Runs schedules over links: rounds, lanes, deadlines, failures. `README.md` says who drives and how work changes hands.

mod active;
mod attention;
mod blame;
mod channels;
mod completion;
mod core;
mod exchange;
mod fault;
mod handover;
mod kin;
mod lane;
mod memory;
mod notice;
mod operation;
mod plan;
mod shape;
mod shared;
mod stamp;
mod wait;
mod walk;
mod watch;
mod witness;

pub(crate) use self::core::Core;
pub(crate) use active::Active;
pub(crate) use channels::{Channels, Naming};
pub(crate) use completion::Completion;
pub(crate) use exchange::{Turn, fits as fits_on_boards, published_bytes};
pub(crate) use kin::Kin;
pub(crate) use memory::Memory;
pub(crate) use operation::Operation;
pub(crate) use plan::{Extent, Plan, SharedPlan, Slicing};
pub(crate) use shape::Shape;
pub(crate) use shared::{Driver, Engine};
pub(crate) use stamp::{Fingerprint, Stamps, remembered};
pub(crate) use wait::WaitPolicy;
