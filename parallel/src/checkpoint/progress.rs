//! What a run must know beside its tensors to go on as if it had not stopped.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::optimizer::Count;
use crate::precision::LossScaler;
use crate::samples::Sampler;

/// Counters and states that are small, and the same on all ranks (but for [`Count::missed`], of which each rank knows its
/// own parameters'; all of them are saved).
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// Updates so far.
    pub optimizer: Count,
    /// The next step of the learning-rate schedule.
    pub schedule_step: u64,
    /// The loss's scale, where there is one.
    pub scaler: Option<LossScaler>,
    /// The order of samples, and the position in it.
    pub sampler: Option<Sampler>,
    /// From which all random numbers come. Streams have no state: with the seed and counters they are where they were.
    pub seed: u64,
    /// Counters of random streams, by whatever name.
    pub counters: BTreeMap<String, u64>,
    /// Whatever else there is.
    pub user: serde_json::Value,
}
