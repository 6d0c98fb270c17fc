//! What data parallel allows.

use std::sync::Arc;

use super::adding::Adding;
use super::hook::{CommHook, Plain};
use crate::mesh::Axis;

/// What happens when a parameter that a rank might use gets no gradient from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unused {
    /// It counts as zeros if another rank has one, and the parameter stays untouched if none has.
    #[default]
    Allowed,
    /// `finish_gradients` is an error on all ranks that names the parameter, if a rank that had data didn't use it.
    Refused,
}

/// How gradients are added.
#[derive(Clone)]
pub struct ReplicatedOptions {
    /// The axes along which ranks have different samples (or positions of them) and the same parameters.
    pub axes: Vec<Axis>,
    /// How many bytes of gradients make a full bucket.
    pub bucket_bytes: usize,
    /// The same for the first bucket, with which sending begins.
    pub first_bucket_bytes: usize,
    /// What happens with parameters that aren't used.
    pub unused: Unused,
    /// In which order the gradients of a rank's micro-batches are added.
    pub adding: Adding,
    /// What buckets go through.
    pub hook: Arc<dyn CommHook>,
}

impl Default for ReplicatedOptions {
    fn default() -> ReplicatedOptions {
        ReplicatedOptions {
            axes: vec![Axis::Dp, Axis::Fsdp, Axis::Cp],
            bucket_bytes: 25 << 20,
            first_bucket_bytes: 1 << 20,
            unused: Unused::Allowed,
            adding: Adding::OneByOne,
            hook: Arc::new(Plain),
        }
    }
}
