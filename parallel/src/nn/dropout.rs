//! Dropout whose masks belong to elements: of the whole activation, wherever a part of it lies.
//!
//! No mask is kept: the backward pass draws the same numbers again.

use candle_core::{DType, Device, Tensor};

use super::{Phase, Placement};
use crate::autograd::{Output, function};
use crate::error::{Error, Result};
use crate::random::Stream;
use crate::value::Value;

/// Sets elements to zero with some probability, and makes up for it with the others.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Dropout {
    stream: Stream,
    probability: f64,
}

impl Dropout {
    /// Dropout at a place of a model, with the place's random numbers.
    ///
    /// # Errors
    /// The probability isn't in [0, 1).
    pub fn new(stream: Stream, probability: f64) -> Result<Dropout> {
        if !(0.0..1.0).contains(&probability) {
            return Err(Error::invalid(format!("dropout with probability {probability}: it must be in [0, 1)")));
        }
        Ok(Dropout { stream, probability })
    }

    /// Whether anything is dropped.
    #[must_use]
    pub fn drops(&self, phase: Phase) -> bool {
        phase == Phase::Training && self.probability > 0.0
    }

    /// An activation of [samples, positions, width], less what is dropped; `positions` are those of its second dimension.
    ///
    /// # Errors
    /// The activation is partial along some axis, or of another shape.
    #[track_caller]
    pub fn forward(&self, input: &Value, placement: &Placement, positions: &[u32]) -> Result<Value> {
        if !self.drops(placement.phase) {
            return Ok(input.clone());
        }
        let dims = input.dims().to_vec();
        if dims.len() != 3 || dims[..2] != [placement.samples.len(), positions.len()] {
            let (samples, positions) = (placement.samples.len(), positions.len());
            return Err(Error::invalid(format!(
                "dropout of {dims:?}, with {samples} samples and {positions} positions"
            )));
        }
        input.map("dropout", |input| {
            let (this, step) = (*self, placement.step);
            let (samples, positions) = (placement.samples.clone(), positions.to_vec());
            let (width, dtype) = (dims[2], input.dtype());
            let mask = move || {
                let mut factors = Vec::with_capacity(samples.len() * positions.len() * width);
                for sample in &samples {
                    let stream = this.stream.at(step).at(*sample);
                    for position in &positions {
                        let first = u64::from(*position) * width as u64;
                        factors.extend((first..first + width as u64).map(|index| this.factor(stream, index)));
                    }
                }
                tensor(factors, &[samples.len(), positions.len(), width], dtype)
            };
            let output = Output::Fresh((input.detach() * mask()?)?);
            function("dropout", &[input], output, move |gradient, _| Ok(vec![Some((gradient * mask()?)?)]))
        })
    }

    /// Factors for attention's probabilities, of [samples, heads, queries, keys]: by the sample, the number of the head among
    /// all, and both positions.
    pub(super) fn of_attention(
        &self,
        placement: &Placement,
        heads: std::ops::Range<usize>,
        [queries, keys]: [&[u32]; 2],
        dtype: DType,
    ) -> Result<Tensor> {
        let dims = [placement.samples.len(), heads.len(), queries.len(), keys.len()];
        let mut factors = Vec::with_capacity(dims.iter().product());
        for sample in &placement.samples {
            for head in heads.clone() {
                let stream = self.stream.at(placement.step).at(*sample).at(head as u64);
                for query in queries {
                    let index = |key: &u32| u64::from(*query) << 32 | u64::from(*key);
                    factors.extend(keys.iter().map(|key| self.factor(stream, index(key))));
                }
            }
        }
        tensor(factors, &dims, dtype)
    }

    fn factor(&self, stream: Stream, index: u64) -> f64 {
        if stream.uniform(index) < self.probability { 0.0 } else { 1.0 / (1.0 - self.probability) }
    }
}

fn tensor(factors: Vec<f64>, dims: &[usize], dtype: DType) -> Result<Tensor> {
    Ok(Tensor::from_vec(factors, dims, &Device::Cpu)?.to_dtype(dtype)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::testing::{builder, checked, numbers};

    fn half() -> Dropout {
        Dropout::new(builder().stream("dropout"), 0.5).unwrap()
    }

    #[test]
    fn its_gradient_is_that_of_differences() {
        let placement = Placement::training(3, [5, 9], 4);
        checked(&builder(), &[&[2, 4, 3]], |inputs| half().forward(&inputs[0], &placement, &placement.positions));
    }

    #[test]
    fn a_part_drops_what_the_whole_does() {
        let whole = Placement::training(3, [5, 9], 4);
        let input = Value::invariant(numbers(0, &[2, 4, 64]));
        let all = half().forward(&input, &whole, &whole.positions).unwrap();
        let some = input.rearranged(|input| input.narrow(0, 1, 1)?.narrow(1, 2, 2)).unwrap();
        let placement = Placement { samples: vec![9], ..whole.clone() };
        let part = half().forward(&some, &placement, &whole.positions[2..]).unwrap();
        let want = all.tensor().narrow(0, 1, 1).unwrap().narrow(1, 2, 2).unwrap();
        assert_eq!(part.tensor().to_vec3::<f64>().unwrap(), want.to_vec3::<f64>().unwrap());
        let dropped = all.tensor().flatten_all().unwrap().to_vec1::<f64>().unwrap();
        let dropped = dropped.iter().filter(|number| **number == 0.0).count();
        assert!((200..312).contains(&dropped), "{dropped} of 512");
        let next = Placement { step: 4, ..whole.clone() };
        let other = half().forward(&input, &next, &whole.positions).unwrap();
        assert_ne!(other.tensor().to_vec3::<f64>().unwrap(), all.tensor().to_vec3::<f64>().unwrap());
    }

    #[test]
    fn heads_drop_the_same_wherever_they_are() {
        let placement = Placement::training(3, [5, 9], 4);
        let mask = |heads: std::ops::Range<usize>| {
            let positions = [&placement.positions[..], &placement.positions];
            half().of_attention(&placement, heads, positions, DType::F64).unwrap()
        };
        let part = mask(2..4).flatten_all().unwrap().to_vec1::<f64>().unwrap();
        let want = mask(0..4).narrow(1, 2, 2).unwrap().flatten_all().unwrap().to_vec1::<f64>().unwrap();
        assert_eq!(part, want);
        assert!(part[..32] != part[32..]);
    }

    #[test]
    fn nothing_is_dropped_in_evaluation() {
        let placement = Placement::evaluation(2, 4);
        let input = Value::invariant(numbers(0, &[2, 4, 3]));
        let output = half().forward(&input, &placement, &placement.positions).unwrap();
        assert_eq!(output.tensor().to_vec3::<f64>().unwrap(), input.tensor().to_vec3::<f64>().unwrap());
        assert!(Dropout::new(builder().stream("dropout"), 1.0).is_err());
    }
}
