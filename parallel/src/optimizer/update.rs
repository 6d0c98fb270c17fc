//! A rule applied to shards, in place and in one pass over memory.

use std::collections::{BTreeMap, BTreeSet};

use super::group::{Group, GroupOptions, is_matrix};
use super::kernel::{Slices, Update, slices};
use crate::error::{Error, Result};
use crate::parameter::Parameter;
use crate::state::{Numbers, Shard, State};

/// What makes new values of gradients, element by element.
///
/// Elements don't meet, so that a shard may be cut anywhere.
pub trait Rule: Send + Sync {
    /// The names of what is remembered of each element.
    fn moments(&self) -> &'static [&'static str];

    /// How strongly values are drawn to zero, where no group says otherwise.
    fn weight_decay(&self) -> f64;

    /// Updates the elements of one parameter.
    fn update(&self, slices: Slices<'_>, update: &Update);
}

/// How many updates there have been.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Count {
    /// Updates so far.
    pub steps: u64,
    /// By parameter, how many of them left it out, since it had no gradient.
    pub missed: BTreeMap<String, u64>,
}

impl Count {
    fn next_of(&self, parameter: &str) -> u64 {
        self.steps + 1 - self.missed.get(parameter).copied().unwrap_or(0)
    }
}

/// What one update is given.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Step {
    /// The learning rate, before any group's factor.
    pub learning_rate: f64,
    /// What the sums of gradients are divided by: the number of tokens that count in the whole batch, times the scale of the
    /// loss if it is scaled.
    pub divisor: f64,
    /// What clipping leaves of the gradients: 1 for all.
    pub clip_factor: f64,
}

/// A rule, with groups of parameters and the number of updates so far.
pub struct Optimizer {
    rule: Box<dyn Rule>,
    groups: Vec<Group>,
    count: Count,
}

impl Optimizer {
    /// An optimizer that treats all parameters alike.
    #[must_use]
    pub fn new(rule: impl Rule + 'static) -> Optimizer {
        Optimizer { rule: Box::new(rule), groups: Vec::new(), count: Count::default() }
    }

    /// This, with another treatment of the parameters that `applies` picks, unless an earlier group has them.
    #[must_use]
    pub fn with_group(
        mut self,
        applies: impl Fn(&Parameter) -> bool + Send + Sync + 'static,
        options: GroupOptions,
    ) -> Optimizer {
        self.groups.push(Group { applies: Box::new(applies), options });
        self
    }

    /// This, with no weight decay for vectors: norms and biases.
    #[must_use]
    pub fn without_decay_of_vectors(self) -> Optimizer {
        self.with_group(|parameter| !is_matrix(parameter), GroupOptions::default())
    }

    /// How many updates there have been.
    #[must_use]
    pub fn count(&self) -> &Count {
        &self.count
    }

    /// Goes on from another number of updates: of a checkpoint.
    pub fn restore(&mut self, count: Count) {
        self.count = count;
    }

    /// The names of what it remembers of each element.
    #[must_use]
    pub fn moments(&self) -> &'static [&'static str] {
        self.rule.moments()
    }

    /// How a parameter is treated.
    #[must_use]
    pub fn options_of(&self, parameter: &Parameter) -> GroupOptions {
        let found = self.groups.iter().find(|group| (group.applies)(parameter));
        let rest = GroupOptions { weight_decay: self.rule.weight_decay(), ..GroupOptions::default() };
        found.map_or(rest, |group| group.options)
    }

    /// Updates all shards of a state whose gradients are whole.
    ///
    /// A parameter that got no gradient on any rank is left as it is: it isn't drawn to zero either.
    ///
    /// # Errors
    /// A number in `step` makes no sense, or a shard's moments don't fit its values. The shards before it have been updated
    /// then.
    pub fn step(&mut self, state: &dyn State, step: &Step) -> Result<()> {
        check(step)?;
        let mut missed = BTreeSet::new();
        state.visit(&mut |shard| self.update(shard, step, &mut missed))?;
        missed.into_iter().for_each(|name| *self.count.missed.entry(name).or_default() += 1);
        self.count.steps += 1;
        Ok(())
    }

    fn update(&self, shard: &mut Shard, step: &Step, missed: &mut BTreeSet<String>) -> Result<()> {
        let Shard { segments, values, gradients, moments } = shard;
        let mut moments = in_order(self.moments(), values, moments)?;
        for segment in segments {
            let name = segment.parameter.name();
            if !segment.has_gradient {
                missed.insert(name.to_owned());
                continue;
            }
            let options = self.options_of(&segment.parameter);
            let update = Update {
                learning_rate: step.learning_rate * options.learning_rate_factor,
                weight_decay: options.weight_decay,
                gradient_factor: step.clip_factor / step.divisor,
                step: self.count.next_of(name),
            };
            let moments = moments.iter_mut().map(|numbers| &mut **numbers).collect();
            let slices = slices(segment.range.clone(), values, gradients, moments);
            let slices = slices.ok_or_else(|| Error::invalid(format!("{name}'s numbers are of several types")))?;
            self.rule.update(slices, &update);
        }
        Ok(())
    }
}

fn check(step: &Step) -> Result<()> {
    let Step { learning_rate, divisor, clip_factor } = step;
    let says = |what: &str, number: f64| Err(Error::invalid(format!("an update with {what} {number}")));
    match () {
        () if !(learning_rate.is_finite() && *learning_rate >= 0.0) => says("the learning rate", *learning_rate),
        () if !(divisor.is_finite() && *divisor > 0.0) => says("gradients that are divided by", *divisor),
        () if !(0.0 <= *clip_factor && *clip_factor <= 1.0) => {
            says("gradients that are clipped to a share of", *clip_factor)
        }
        () => Ok(()),
    }
}

/// A shard's moments in a rule's order; zeros where there have been none.
fn in_order<'s>(
    names: &[&str],
    values: &Numbers,
    moments: &'s mut BTreeMap<String, Numbers>,
) -> Result<Vec<&'s mut Numbers>> {
    for name in names {
        let numbers = moments.entry((*name).to_owned()).or_insert_with(|| values.zeros_alike());
        if numbers.len() != values.len() || numbers.dtype() != values.dtype() {
            let (is, should) = (numbers.len(), values.len());
            return Err(Error::invalid(format!(
                "{name} has {is} elements or another type, and the values have {should}"
            )));
        }
    }
    let mut found: BTreeMap<&str, &mut Numbers> =
        moments.iter_mut().map(|(name, numbers)| (name.as_str(), numbers)).collect();
    Ok(names.iter().map(|name| found.remove(name).expect("it was inserted")).collect())
}

#[cfg(test)]
mod tests;
