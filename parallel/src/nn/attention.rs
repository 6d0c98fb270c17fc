//! Attention between heads, without the projections around it.

use std::ops::Range;
use std::panic::Location;

use candle_core::{Device, Tensor};

use super::softmax::{probabilities, through};
use super::{Dropout, Placement};
use crate::autograd::{Output, function};
use crate::error::{Error, Result};
use crate::tensor::{narrow_to, wide};
use crate::value::{Spread, Together, Value};

/// What heads attend to. Whoever cuts sequences among ranks brings an implementation of its own.
pub trait Attention: Send + Sync {
    /// What the queries, of [batch, positions, heads, size], take from keys and values, of [batch, positions, key heads, size]:
    /// as many heads, in order, belong to each key head. The result is shaped like the queries. `heads` are the queries'
    /// numbers among those of all ranks.
    ///
    /// # Errors
    /// The shapes don't fit, or a collective fails.
    fn attend(
        &self,
        heads: [&Value; 3],
        numbers: Range<usize>,
        placement: &Placement,
        dropout: &Dropout,
    ) -> Result<Value>;
}

/// Each query attends to the keys of its own position and earlier ones, all of which are on this rank.
#[derive(Clone, Copy, Debug, Default)]
pub struct CausalAttention;

impl Attention for CausalAttention {
    fn attend(
        &self,
        heads: [&Value; 3],
        numbers: Range<usize>,
        placement: &Placement,
        dropout: &Dropout,
    ) -> Result<Value> {
        attention(heads, numbers, placement, dropout)
    }
}

/// Causal attention: `softmax(query keyᵀ / sqrt(size)) value`, where keys at later positions count for nothing.
///
/// `heads` are queries, keys and values as in [`Attention::attend`]. Probabilities are kept for the backward pass: as many as
/// there are pairs of positions.
///
/// # Errors
/// The shapes don't fit, or the values are of kinds that don't go together.
#[track_caller]
pub fn attention(heads: [&Value; 3], numbers: Range<usize>, placement: &Placement, dropout: &Dropout) -> Result<Value> {
    let spreads = heads.map(Value::spread);
    let spread = Spread::of_all(&spreads, Together::Any, "attention", Location::caller())?;
    let shape = Shape::of(heads, &numbers, placement)?;
    let dtype = heads[0].tensor().dtype();
    let [query, key, value] = heads.map(|heads| shape.by_key(heads.tensor()));
    let (query, key, value) = (query?, key?, value?);
    let scale = 1.0 / (shape.size as f64).sqrt();
    let scores = query.matmul(&key.t()?)?.affine(scale, 0.0)?;
    let mask = later(&placement.positions)?.to_dtype(scores.dtype())?;
    let probabilities = probabilities(&scores.reshape(shape.scores())?.broadcast_add(&mask)?)?;
    drop(scores);
    let factors = {
        let (placement, dropout, dtype) = (placement.clone(), *dropout, query.dtype());
        move || -> Result<Option<Tensor>> {
            if !dropout.drops(placement.phase) {
                return Ok(None);
            }
            let positions = &placement.positions[..];
            let factors = dropout.of_attention(&placement, numbers.clone(), [positions, positions], dtype);
            Ok(Some(factors?.reshape(shape.scores())?))
        }
    };
    let taken = times(&probabilities, factors()?.as_ref())?;
    let output = shape.by_position(&taken.reshape(shape.by_key_scores())?.matmul(&value)?)?;
    let output = Output::Fresh(narrow_to(dtype, &output)?);
    let tensor = function("attention", &heads.map(Value::tensor), output, move |gradient, _| {
        let gradient = shape.by_key(gradient)?;
        let factors = factors()?;
        let taken = times(&probabilities, factors.as_ref())?.reshape(shape.by_key_scores())?;
        let of_value = taken.t()?.matmul(&gradient)?;
        let of_taken = gradient.matmul(&value.t()?)?.reshape(shape.scores())?;
        let of_scores = through(&probabilities, &times(&of_taken, factors.as_ref())?)?.affine(scale, 0.0)?;
        let of_scores = of_scores.reshape(shape.by_key_scores())?;
        let (of_query, of_key) = (of_scores.matmul(&key)?, of_scores.t()?.matmul(&query)?);
        let back = |heads: &Tensor| narrow_to(dtype, &shape.by_position(heads)?).map(Some);
        [&of_query, &of_key, &of_value].into_iter().map(back).collect()
    })?;
    Ok(Value::new(tensor, spread))
}

fn times(numbers: &Tensor, factors: Option<&Tensor>) -> Result<Tensor> {
    Ok(match factors {
        Some(factors) => (numbers * factors)?,
        None => numbers.clone(),
    })
}

/// Minus infinity for keys that come after a query, 0 for all others.
fn later(positions: &[u32]) -> Result<Tensor> {
    let one = |query: u32, key: u32| if key > query { f32::NEG_INFINITY } else { 0.0 };
    let all = positions.iter().flat_map(|query| positions.iter().map(move |key| one(*query, *key))).collect();
    Ok(Tensor::from_vec(all, (positions.len(), positions.len()), &Device::Cpu)?)
}

/// The sizes of what attention computes with. Queries of one key head are rows of one matrix, so that keys and values need not
/// be repeated.
#[derive(Clone, Copy)]
struct Shape {
    batch: usize,
    positions: usize,
    heads: usize,
    key_heads: usize,
    size: usize,
}

impl Shape {
    fn of(heads: [&Value; 3], numbers: &Range<usize>, placement: &Placement) -> Result<Shape> {
        let [query, key, value] = heads.map(|heads| heads.dims().to_vec());
        let wrong = || {
            let (samples, positions) = (placement.samples.len(), placement.positions.len());
            Error::invalid(format!(
                "attention of {query:?} to {key:?} and {value:?}, with heads {numbers:?} of {samples} samples and \
                 {positions} positions"
            ))
        };
        let ([batch, positions, heads, size], [_, _, key_heads, _]) = (&query[..], &key[..]) else {
            return Err(wrong());
        };
        let shape = Shape { batch: *batch, positions: *positions, heads: *heads, key_heads: *key_heads, size: *size };
        let fits = key == [shape.batch, shape.positions, shape.key_heads, shape.size]
            && value == key
            && shape.key_heads > 0
            && shape.heads.is_multiple_of(shape.key_heads)
            && numbers.len() == shape.heads
            && placement.samples.len() == shape.batch
            && placement.positions.len() == shape.positions;
        if fits { Ok(shape) } else { Err(wrong()) }
    }

    /// From [batch, positions, heads, size] to [batch, key heads, (queries of each), size].
    fn by_key(&self, heads: &Tensor) -> Result<Tensor> {
        let heads = wide(heads)?.transpose(1, 2)?.contiguous()?;
        Ok(heads.reshape((self.batch, self.key_heads, (), self.size))?)
    }

    /// Back.
    fn by_position(&self, heads: &Tensor) -> Result<Tensor> {
        let heads = heads.reshape((self.batch, (), self.positions, self.size))?;
        Ok(heads.transpose(1, 2)?.contiguous()?)
    }

    fn scores(&self) -> (usize, usize, usize, usize) {
        (self.batch, self.heads, self.positions, self.positions)
    }

    fn by_key_scores(&self) -> (usize, usize, usize, usize) {
        let queries = self.heads / self.key_heads * self.positions;
        (self.batch, self.key_heads, queries, self.positions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::testing::{builder, checked, numbers};

    fn dropout(probability: f64) -> Dropout {
        Dropout::new(builder().stream("dropout"), probability).unwrap()
    }

    #[test]
    fn its_gradients_are_those_of_differences() {
        for (key_heads, probability) in [(4, 0.0), (2, 0.0), (1, 0.3)] {
            let placement = Placement { positions: vec![7, 2, 5], ..Placement::training(1, [3, 4], 3) };
            let key: &[usize] = &[2, 3, key_heads, 2];
            checked(&builder(), &[&[2, 3, 4, 2], key, key], |inputs| {
                attention([&inputs[0], &inputs[1], &inputs[2]], 0..4, &placement, &dropout(probability))
            });
        }
    }

    #[test]
    fn later_keys_count_for_nothing_and_groups_share_theirs() {
        let placement = Placement::training(1, [0], 3);
        let all: Vec<Value> =
            [4, 2, 2].map(|heads| Value::invariant(numbers(heads, &[1, 3, heads as usize, 2]))).into();
        let run = |query: &Value, key: &Value, value: &Value, heads| {
            let output = attention([query, key, value], heads, &placement, &dropout(0.0)).unwrap();
            output.tensor().flatten_all().unwrap().to_vec1::<f64>().unwrap()
        };
        let output = run(&all[0], &all[1], &all[2], 0..4);
        // The first position has only its own value: head 0 that of key head 0, head 3 that of key head 1.
        let value = all[2].tensor().flatten_all().unwrap().to_vec1::<f64>().unwrap();
        assert_eq!((&output[..2], &output[6..8]), (&value[..2], &value[2..4]));
        let head = |value: &Value, head| value.rearranged(|value| value.narrow(2, head, 1)).unwrap();
        let alone = run(&head(&all[0], 3), &head(&all[1], 1), &head(&all[2], 1), 3..4);
        for position in 0..3 {
            assert_eq!(output[position * 8 + 6..][..2], alone[position * 2..][..2]);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let placement = Placement::training(1, [0], 3);
        let query = Value::invariant(numbers(0, &[1, 3, 4, 2]));
        let key = Value::invariant(numbers(0, &[1, 3, 3, 2]));
        let error = attention([&query, &key, &key], 0..4, &placement, &dropout(0.0)).unwrap_err().to_string();
        assert!(error.contains("[1, 3, 4, 2] to [1, 3, 3, 2]"), "{error}");
    }
}
