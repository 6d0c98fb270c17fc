//! Cross entropy of logits that are cut along the vocabulary, without bringing them together.
//!
//! Of each token three numbers cross the ranks: the largest logit, the target's logit, and the sum of exponentials. Back,
//! each rank has what it needs: its own logits' probabilities, less 1 at the target.

use std::panic::Location;

use candle_core::{DType, Device, Tensor};
use paceline_comm::ReduceOp;

use super::pending::rows;
use super::{TensorParallel, wide};
use crate::autograd::{Output, function};
use crate::error::{Error, Result};
use crate::parameter::Part;
use crate::value::{Kind, Value};

/// What a loss is computed of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CrossEntropyOptions {
    /// How many tokens there are. Logits beyond are padding, and count for nothing.
    pub vocabulary: usize,
    /// The target that means that a token has none.
    pub ignore_index: i64,
}

impl CrossEntropyOptions {
    /// The usual target of a token that has none.
    pub const IGNORED: i64 = -100;

    /// For a vocabulary; targets of [`CrossEntropyOptions::IGNORED`] count for nothing.
    #[must_use]
    pub fn new(vocabulary: usize) -> CrossEntropyOptions {
        CrossEntropyOptions { vocabulary, ignore_index: CrossEntropyOptions::IGNORED }
    }
}

/// A loss, as a sum: whoever has all sums divides by the number of all tokens.
#[derive(Clone, Debug)]
pub struct Loss {
    /// The sum over tokens, a scalar of single precision at least; the same on all ranks of the group.
    pub sum: Value,
    /// How many tokens have a target.
    pub tokens: usize,
}

/// The sum over tokens of `-ln softmax(logits)[target]`.
///
/// `logits` are this rank's part, [batch, sequence, vocabulary / ranks rounded up], cut as [`Part::piece`] cuts; `targets`, of
/// [batch, sequence], are the same on all ranks of the group.
///
/// # Errors
/// The logits aren't cut along the group as they should be ([`Error::Spread`]), a target isn't in the vocabulary, or a
/// collective fails.
#[track_caller]
pub fn cross_entropy(
    tp: &TensorParallel,
    logits: &Value,
    targets: &Tensor,
    options: CrossEntropyOptions,
) -> Result<Loss> {
    let place = Location::caller();
    tp.expect(logits, Kind::Varying, "cross_entropy", place)?;
    let part = Part::all(&[options.vocabulary]).piece(0, tp.rank(), tp.size());
    let width = *logits.dims().last().unwrap_or(&0);
    if width != part.shape()[0] {
        let (vocabulary, ranks, should) = (options.vocabulary, tp.size(), part.shape()[0]);
        let what = format!(
            "cross_entropy takes {should} logits from each of {ranks} ranks for a vocabulary of {vocabulary}, and is given {width}"
        );
        return Err(tp.wrong(what, place));
    }
    let target = Targets::of(targets, &part, options)?;
    let own = rows(&wide(logits.tensor())?)?;
    if own.dim(0)? != target.len {
        let (dims, targets) = (logits.dims(), targets.dims());
        return Err(Error::invalid(format!("logits of {dims:?} are given with targets of {targets:?}")));
    }
    let own = Own { real: part.real_shape()[0], logits: own };
    let target = target.tensors(own.logits.dtype())?;
    let max = tp.group.all_reduce(&own.max()?, ReduceOp::Max)?;
    let hit = tp.group.all_reduce(&own.at(&target)?, ReduceOp::Sum)?;
    let own_sum = own.exponentials(&max)?.map_or(target.here.zeros_like(), |numbers| numbers.sum(1))?;
    let sum = tp.group.all_reduce(&own_sum, ReduceOp::Sum)?;
    // ln of the sum of all exponentials.
    let normalizer = (sum.log()? + max)?;
    let tokens = target.tokens;
    let loss = ((&normalizer - hit)? * &target.valid)?.sum_all()?;
    let (dims, dtype) = (logits.dims().to_vec(), logits.tensor().dtype());
    let tensor = function("cross_entropy", &[logits.tensor()], Output::Fresh(loss), move |gradient, _| {
        let Some(probabilities) = own.exponentials(&normalizer)? else {
            return Ok(vec![Some(Tensor::zeros(&dims[..], dtype, &Device::Cpu)?)]);
        };
        let each = target.valid.broadcast_mul(gradient)?.unsqueeze(1)?;
        let at_target = (target.here.unsqueeze(1)? * each.neg()?)?;
        let gradient = probabilities.broadcast_mul(&each)?.scatter_add(&target.places.unsqueeze(1)?, &at_target, 1)?;
        let gradient = gradient.pad_with_zeros(1, 0, width - own.real)?;
        Ok(vec![Some(gradient.reshape(&dims[..])?.to_dtype(dtype)?)])
    })?;
    Ok(Loss { sum: tp.value(tensor, logits, Kind::Invariant), tokens })
}

/// This rank's logits, as rows.
struct Own {
    logits: Tensor,
    /// How many columns aren't padding.
    real: usize,
}

impl Own {
    fn max(&self) -> Result<Tensor> {
        if self.real == 0 {
            let (rows, dtype) = (self.logits.dim(0)?, self.logits.dtype());
            return Ok(Tensor::full(f32::NEG_INFINITY, rows, &Device::Cpu)?.to_dtype(dtype)?);
        }
        Ok(self.logits.narrow(1, 0, self.real)?.max(1)?)
    }

    /// The targets' logits, where they are here; 0 elsewhere.
    fn at(&self, target: &TargetTensors) -> Result<Tensor> {
        if self.real == 0 {
            return Ok(target.here.zeros_like()?);
        }
        Ok((self.logits.gather(&target.places.unsqueeze(1)?, 1)?.squeeze(1)? * &target.here)?)
    }

    /// The exponentials of logits less a number of each row's; `None` where all logits are padding.
    fn exponentials(&self, less: &Tensor) -> candle_core::Result<Option<Tensor>> {
        if self.real == 0 {
            return Ok(None);
        }
        self.logits.narrow(1, 0, self.real)?.broadcast_sub(&less.unsqueeze(1)?)?.exp().map(Some)
    }
}

struct Targets {
    /// Each token's target: whether it has one, and where among this rank's logits it is.
    valid: Vec<bool>,
    places: Vec<Option<u32>>,
    len: usize,
}

struct TargetTensors {
    /// 1 for tokens with a target.
    valid: Tensor,
    /// 1 for tokens whose target is among this rank's logits.
    here: Tensor,
    /// Where it is; 0 for others.
    places: Tensor,
    tokens: usize,
}

impl Targets {
    fn of(targets: &Tensor, part: &Part, options: CrossEntropyOptions) -> Result<Targets> {
        let ids = targets.flatten_all()?.to_dtype(DType::I64)?.to_vec1::<i64>()?;
        let (first, real) = (part.first()[0] as i64, part.real_shape()[0] as i64);
        let valid: Vec<bool> = ids.iter().map(|id| *id != options.ignore_index).collect();
        let vocabulary = options.vocabulary as i64;
        if let Some((id, _)) = ids.iter().zip(&valid).find(|(id, valid)| **valid && !(0..vocabulary).contains(*id)) {
            return Err(Error::invalid(format!("a target is {id}, and the vocabulary has {vocabulary} tokens")));
        }
        let local =
            |(id, valid): (&i64, &bool)| (*valid && (first..first + real).contains(id)).then_some((id - first) as u32);
        let places = ids.iter().zip(&valid).map(local).collect();
        Ok(Targets { len: ids.len(), valid, places })
    }

    fn tensors(&self, dtype: DType) -> Result<TargetTensors> {
        let marks = |marks: Vec<bool>| -> Result<Tensor> {
            let marks: Vec<f32> = marks.into_iter().map(|mark| if mark { 1.0 } else { 0.0 }).collect();
            Ok(Tensor::from_vec(marks, self.len, &Device::Cpu)?.to_dtype(dtype)?)
        };
        let places: Vec<u32> = self.places.iter().map(|place| place.unwrap_or(0)).collect();
        Ok(TargetTensors {
            valid: marks(self.valid.clone())?,
            here: marks(self.places.iter().map(Option::is_some).collect())?,
            places: Tensor::from_vec(places, self.len, &Device::Cpu)?,
            tokens: self.valid.iter().filter(|valid| **valid).count(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Group;
    use crate::mesh::Axis;
    use crate::value::Spread;
    use candle_core::Var;
    use paceline_comm::{Collective, Communicator};

    /// Loss, valid tokens, and the gradients of the logits of all ranks, one after another.
    fn on(ranks: usize, vocabulary: usize, logits: &[[f64; 5]], targets: &[i64]) -> (f64, usize, Vec<Vec<f64>>) {
        let comms = Communicator::in_process(ranks).unwrap();
        let results: Vec<(f64, usize, Vec<Vec<f64>>)> = std::thread::scope(|scope| {
            let run = |comm: Communicator| {
                let tp = TensorParallel { group: Group::of(comm, Axis::Tp), sequence: false };
                let part = Part::all(&[vocabulary]).piece(0, tp.rank(), tp.size());
                // Padding has large logits, which must count for nothing.
                let column = |row: &[f64; 5], at: usize| if at < vocabulary { row[at] } else { 1e3 };
                let range = part.first()[0]..part.first()[0] + part.shape()[0];
                let own: Vec<f64> = logits.iter().flat_map(|row| range.clone().map(|at| column(row, at))).collect();
                let own = Tensor::from_vec(own, (1, logits.len(), part.shape()[0]), &Device::Cpu).unwrap();
                let own = Var::from_tensor(&own).unwrap();
                let value = Value::new(own.as_tensor().clone(), tp.cut());
                let targets = Tensor::new(targets, &Device::Cpu).unwrap().unsqueeze(0).unwrap();
                let loss = cross_entropy(&tp, &value, &targets, CrossEntropyOptions::new(vocabulary)).unwrap();
                if ranks > 1 {
                    let traffic = tp.group.traffic().of(Collective::AllReduce);
                    assert_eq!((traffic.calls, traffic.payload_bytes), (3, 3 * 8 * logits.len() as u64));
                }
                let gradients = (loss.sum.tensor() * 2.0).unwrap().backward().unwrap();
                let gradient = gradients.get(&own).unwrap().squeeze(0).unwrap().to_vec2::<f64>().unwrap();
                (loss.sum.tensor().to_scalar::<f64>().unwrap(), loss.tokens, gradient)
            };
            let threads: Vec<_> = comms.into_iter().map(|comm| scope.spawn(move || run(comm))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let (loss, tokens, _) = results[0];
        let gradient = |row: usize| results.iter().flat_map(|(_, _, gradient)| gradient[row].clone()).collect();
        (loss, tokens, (0..logits.len()).map(gradient).collect())
    }

    /// The numbers of a report of a cross entropy that was fed gathered logits, and what it should have been.
    #[test]
    fn the_loss_is_that_of_all_logits() {
        let logits = [[0.0, 1.0, 2.0, 3.0, 0.0], [3.0, 2.0, 1.0, 0.0, 0.0], [900.0, 0.0, -900.0, 5.0, 0.0]];
        for ranks in 1..=4 {
            let (loss, tokens, gradients) = on(ranks, 4, &logits, &[3, -100, 0]);
            assert!((loss - 0.440_189_7).abs() < 1e-7 && tokens == 2, "{ranks}: {loss} {tokens}");
            let sum: f64 = (0..4).map(|at| f64::exp(f64::from(at))).sum();
            for (at, is) in gradients[0].iter().take(4).enumerate() {
                let want = 2.0 * (f64::exp(at as f64) / sum - if at == 3 { 1.0 } else { 0.0 });
                assert!((is - want).abs() < 1e-12);
            }
            assert!(gradients[1].iter().all(|gradient| *gradient == 0.0));
        }
    }

    #[test]
    fn padding_counts_for_nothing() {
        let logits = [[0.3, -1.0, 2.0, 0.7, 1.1]];
        let (want, _, gradient) = on(1, 5, &logits, &[4]);
        for ranks in 2..=4 {
            let (loss, _, gradients) = on(ranks, 5, &logits, &[4]);
            assert!((loss - want).abs() < 1e-12, "{ranks}: {loss} {want}");
            gradients[0].iter().zip(&gradient[0]).for_each(|(one, other)| assert!((one - other).abs() < 1e-12));
            assert!(gradients[0][5..].iter().all(|gradient| *gradient == 0.0), "{gradients:?}");
        }
    }

    #[test]
    fn gathered_logits_are_refused() {
        let comms = Communicator::in_process(2).unwrap();
        for comm in comms {
            let tp = TensorParallel { group: Group::of(comm, Axis::Tp), sequence: false };
            let logits = Tensor::zeros((1, 1, 4), DType::F64, &Device::Cpu).unwrap();
            let target = Tensor::new(&[[3i64]], &Device::Cpu).unwrap();
            use Kind::{Invariant, Partial, Replicated, Varying};
            for (kind, width) in [(Invariant, 4), (Replicated, 4), (Varying, 4), (Invariant, 2), (Partial, 2)] {
                let logits = logits.narrow(2, 0, width).unwrap();
                let value = Value::new(logits, Spread::invariant().with(Axis::Tp, kind));
                let error = cross_entropy(&tp, &value, &target, CrossEntropyOptions::new(4)).unwrap_err();
                assert!(matches!(error, Error::Spread { .. }), "{kind:?}: {error}");
            }
            let value = Value::new(logits.narrow(2, 0, 2).unwrap(), tp.cut());
            let target = Tensor::new(&[[4i64]], &Device::Cpu).unwrap();
            let error = cross_entropy(&tp, &value, &target, CrossEntropyOptions::new(4)).unwrap_err().to_string();
            assert!(error.contains("a target is 4"), "{error}");
        }
    }
}
