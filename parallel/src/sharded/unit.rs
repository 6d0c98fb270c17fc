//! Parameters that are gathered and reduced together, as one flat vector.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use candle_core::DType;

use super::sum::Sum;
use crate::error::{Error, Result};
use crate::group::{Elements, Started};
use crate::mesh::Axis;
use crate::parameter::Parameter;
use crate::state::{Numbers, Segment, Shard};

/// Groups parameters by what a function makes of their names, in the order in which each group first appears.
#[must_use]
pub fn units_by(parameters: &[Parameter], unit_of: impl Fn(&str) -> String) -> Vec<Vec<Parameter>> {
    let mut units: Vec<(String, Vec<Parameter>)> = Vec::new();
    for parameter in parameters {
        let unit = unit_of(parameter.name());
        match units.iter_mut().find(|(name, _)| *name == unit) {
            Some((_, members)) => members.push(parameter.clone()),
            None => units.push((unit, vec![parameter.clone()])),
        }
    }
    units.into_iter().map(|(_, members)| members).collect()
}

/// The unit of a parameter in a model of numbered layers: its name up to the first number, such as `layers.3`; one unit for all that
/// belongs to no layer.
///
/// ```
/// use paceline_parallel::sharded::layer_of;
///
/// assert_eq!(layer_of("layers.3.attention.query"), "layers.3");
/// assert_eq!(layer_of("embedding.weight"), "");
/// ```
#[must_use]
pub fn layer_of(name: &str) -> String {
    let words: Vec<&str> = name.split('.').collect();
    let number = words.iter().position(|word| word.parse::<u64>().is_ok());
    number.map_or(String::new(), |number| words[..=number].join("."))
}

/// Where a unit's values are.
pub(super) enum Place {
    /// In its parameters.
    Here,
    /// On their way since then.
    Coming(Started, Instant),
    /// In the ranks' blocks.
    Away,
}

/// What is known of a parameter's gradients.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub(super) used: bool,
    /// How often all its uses had given theirs, in what is sent next.
    pub(super) completions: u32,
    /// How often that is awaited.
    pub(super) awaited: u32,
}

pub(super) struct Unit {
    pub(super) parameters: Vec<Parameter>,
    /// Where each lies in the flat vector.
    pub(super) ranges: Vec<Range<usize>>,
    /// The flat vector's length, a multiple of the number of ranks.
    pub(super) len: usize,
    pub(super) dtype: DType,
    /// This rank's block. Its gradients are there only while it is visited, or between `finish_gradients` and `publish`.
    pub(super) shard: Shard,
    /// The block's values in the parameters' type: always where values are sharded, else until they are published.
    pub(super) block: Option<Elements>,
    /// Gradients that haven't been reduced.
    pub(super) full: Option<Sum>,
    /// The block of those that have.
    pub(super) kept: Option<Sum>,
    /// Where gradients of stretches of the block are added further.
    pub(super) further: Vec<(Vec<Axis>, Vec<Range<usize>>)>,
    pub(super) place: Place,
    pub(super) seen: Vec<Seen>,
    /// When a gradient was last complete, as a number that grows.
    pub(super) last: u64,
    /// Whether its gradients have been complete since its values were last asked for in a forward pass.
    pub(super) is_done: bool,
    /// Whether its gradients have left in this round.
    pub(super) has_left: bool,
}

impl Unit {
    /// A unit whose parameters have their values; `block` of `blocks` is this rank's.
    pub(super) fn new(parameters: Vec<Parameter>, block: usize, blocks: usize) -> Result<Unit> {
        let dtype = parameters.first().ok_or_else(|| Error::invalid("a unit has no parameters"))?.dtype();
        if let Some(other) = parameters.iter().find(|parameter| parameter.dtype() != dtype) {
            let (one, other, is) = (parameters[0].name(), other.name(), other.dtype());
            return Err(Error::invalid(format!(
                "{one} ({dtype:?}) and {other} ({is:?}) are in one unit: put parameters of different types in different units"
            )));
        }
        let mut ranges = Vec::new();
        for parameter in &parameters {
            let begin = ranges.last().map_or(0, |range: &Range<usize>| range.end);
            ranges.push(begin..begin + parameter.part().len());
        }
        let len = ranges.last().map_or(0, |range| range.end).next_multiple_of(blocks);
        let mine = block * (len / blocks)..(block + 1) * (len / blocks);
        let segments = parameters.iter().zip(&ranges).filter_map(|(parameter, range)| {
            let (begin, end) = (range.start.max(mine.start), range.end.min(mine.end));
            (begin < end).then(|| Segment {
                parameter: parameter.clone(),
                range: begin - mine.start..end - mine.start,
                first: begin - range.start,
                has_gradient: false,
            })
        });
        let segments = segments.collect();
        let values = Numbers::zeros(dtype, mine.len());
        let gradients = Numbers::zeros(dtype, 0);
        let shard = Shard { segments, gradients, values, moments: BTreeMap::new() };
        let seen = vec![Seen { used: false, completions: 0, awaited: 1 }; parameters.len()];
        Ok(Unit {
            parameters,
            ranges,
            len,
            dtype,
            shard,
            block: None,
            full: None,
            kept: None,
            further: Vec::new(),
            place: Place::Here,
            seen,
            last: 0,
            is_done: false,
            has_left: false,
        })
    }

    /// The flat vector of its parameters' values, in the precision of training.
    pub(super) fn flat(&self) -> Result<Numbers> {
        let mut flat = Numbers::zeros(self.dtype, self.len);
        for (parameter, range) in self.parameters.iter().zip(&self.ranges) {
            flat.write(range.start, &parameter.value()?)?;
        }
        Ok(flat)
    }

    /// Gives the parameters their values out of the flat vector.
    pub(super) fn give(&mut self, flat: &Elements) -> Result<()> {
        for (parameter, range) in self.parameters.iter().zip(&self.ranges) {
            parameter.set(&flat.tensor_of(range.clone(), parameter.part().shape())?)?;
        }
        self.place = Place::Here;
        Ok(())
    }

    /// Lets the values go. What is on its way is handed back: it goes on.
    pub(super) fn release(&mut self) -> Option<Started> {
        self.parameters.iter().for_each(Parameter::release);
        match std::mem::replace(&mut self.place, Place::Away) {
            Place::Coming(started, _) => Some(started),
            Place::Here | Place::Away => None,
        }
    }

    /// Takes the block's values from the master values.
    pub(super) fn round_block(&mut self) -> Result<()> {
        let values = &self.shard.values;
        self.block = Some(Elements::of(&values.tensor(0..values.len(), values.len(), self.dtype)?)?);
        Ok(())
    }

    /// Whether no use of its parameters owes a gradient.
    pub(super) fn is_idle(&self) -> bool {
        self.parameters.iter().all(|parameter| parameter.open_uses() == 0)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.seen.iter().all(|seen| seen.completions >= seen.awaited)
    }

    pub(super) fn was_used(&self) -> bool {
        self.seen.iter().any(|seen| seen.completions > 0)
    }
}
