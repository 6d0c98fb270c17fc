//! Ranks as threads of one process: rings over memory of the process, found through a hub.

mod hub;

pub(crate) use hub::{Meeting, Offer, leave, take, take_back};
