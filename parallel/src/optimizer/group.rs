//! Parameters that are treated alike, found by a rule.

use crate::parameter::Parameter;

/// What differs from parameter to parameter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GroupOptions {
    /// What the step's learning rate is multiplied by.
    pub learning_rate_factor: f64,
    /// How strongly values are drawn to zero.
    pub weight_decay: f64,
}

impl Default for GroupOptions {
    fn default() -> GroupOptions {
        GroupOptions { learning_rate_factor: 1.0, weight_decay: 0.0 }
    }
}

/// Whether a parameter is a matrix, or more: what isn't (norms, biases) is not drawn to zero, as a rule.
///
/// It is the logical tensor that counts, not this rank's part of it.
#[must_use]
pub fn is_matrix(parameter: &Parameter) -> bool {
    parameter.part().whole().len() >= 2
}

pub(super) struct Group {
    pub(super) applies: Box<dyn Fn(&Parameter) -> bool + Send + Sync>,
    pub(super) options: GroupOptions,
}
