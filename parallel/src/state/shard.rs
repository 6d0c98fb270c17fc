//! A flat vector of numbers that one rank updates.

use std::collections::BTreeMap;
use std::ops::Range;

use super::numbers::Numbers;
use crate::parameter::Parameter;

/// A stretch of a parameter in a shard.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The parameter.
    pub parameter: Parameter,
    /// Where it lies in the shard's vectors.
    pub range: Range<usize>,
    /// The row-major place, in the parameter's local part, of the stretch's first element.
    pub first: usize,
    /// Whether any rank gave the parameter a gradient in this step. Without one an optimizer leaves the stretch alone: its
    /// gradient is zero because nobody used it, not because there is nothing to change.
    pub has_gradient: bool,
}

/// What a rank updates together: values, their gradients, and what an optimizer remembers of each.
///
/// Padding belongs to no segment, or to a part of a parameter that lies beyond its tensor's end
/// ([`Part`](crate::parameter::Part)); its gradients are zero.
#[derive(Clone, Debug)]
pub struct Shard {
    /// What lies where, in order.
    pub segments: Vec<Segment>,
    /// The parameters' values, in the precision of training.
    pub values: Numbers,
    /// The step's gradients: only between `finish_gradients` and `publish` are they whole.
    pub gradients: Numbers,
    /// What the optimizer remembers, by name; each as long as `values`.
    pub moments: BTreeMap<String, Numbers>,
}

impl Shard {
    /// A shard of whole parameters, one after another, with their present values.
    ///
    /// # Errors
    /// A value isn't here.
    pub fn of(parameters: &[Parameter]) -> crate::Result<Shard> {
        let len = parameters.iter().map(|parameter| parameter.part().len()).sum();
        let dtype = parameters.first().map_or(candle_core::DType::F32, Parameter::dtype);
        let mut values = Numbers::zeros(dtype, len);
        let (mut segments, mut begin) = (Vec::new(), 0);
        for parameter in parameters {
            values.write(begin, &parameter.value()?)?;
            let range = begin..begin + parameter.part().len();
            begin = range.end;
            segments.push(Segment { parameter: parameter.clone(), range, first: 0, has_gradient: false });
        }
        Ok(Shard { segments, gradients: values.zeros_alike(), values, moments: BTreeMap::new() })
    }

    /// Forgets the step's gradients.
    pub fn forget_gradients(&mut self) {
        self.gradients.clear();
        self.segments.iter_mut().for_each(|segment| segment.has_gradient = false);
    }

    /// Gives parameters that lie here whole their values.
    ///
    /// # Errors
    /// A parameter lies here in part.
    pub fn give_values(&self) -> crate::Result<()> {
        self.segments.iter().try_for_each(|segment| {
            let parameter = &segment.parameter;
            parameter.set(&self.values.tensor(segment.range.clone(), parameter.part().shape(), parameter.dtype())?)
        })
    }
}
