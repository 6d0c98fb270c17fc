//! Segments that are computed twice: once without keeping anything but the input, and again when their gradients are due.
//!
//! What lies inside of a segment is in memory only while its backward pass runs. Both runs give the same bits, since randomness
//! belongs to places ([`crate::random`]) and collectives fold in the same order each time.

use candle_core::Var;

use super::function::{Output, function, is_recording, without_gradients};
use super::seed::{backward_from, gradient_of};
use crate::error::Result;
use crate::value::Value;

/// What a segment makes of an input, whose inside is computed again in the backward pass.
///
/// The segment must not change, nor depend on anything that does: not on whether it is recorded, say. It may use parameters,
/// which get their gradients in its second run. Inputs other than the one that is given get none.
///
/// # Errors
/// Those of the segment.
pub fn recompute(input: &Value, segment: impl Fn(&Value) -> Result<Value> + Send + Sync + 'static) -> Result<Value> {
    if !is_recording() {
        return segment(input);
    }
    let kept = input.detach();
    let output = without_gradients(|| segment(&kept))?;
    let spread = output.spread().clone();
    // It may be the input, or a view of it.
    let output = Output::Shared(output.into_tensor());
    let tensor = function("recompute", &[input.tensor()], output, move |gradient, _| {
        let variable = Var::from_tensor(kept.tensor())?;
        let again = segment(&Value::new(variable.as_tensor().clone(), kept.spread().clone()))?;
        let found = backward_from(&[(again.tensor(), gradient)])?;
        Ok(vec![Some(gradient_of(&found, &variable)?)])
    })?;
    Ok(Value::new(tensor, spread))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use candle_core::{Device, Tensor};

    use super::*;
    use crate::parameter::{Parameter, Part};
    use crate::value::Spread;

    /// Squares times a parameter, counted.
    fn scaled(parameter: &Parameter, runs: &Arc<AtomicUsize>) -> impl Fn(&Value) -> Result<Value> + use<> {
        let (parameter, runs) = (parameter.clone(), runs.clone());
        move |input| {
            runs.fetch_add(1, Ordering::Relaxed);
            let usage = Arc::new(parameter.used());
            let squares = input.tensor().sqr()?;
            let own = squares.detach();
            let product = Output::Fresh((&own * usage.value()?)?);
            let tensor = function("scaled", &[&squares], product, move |gradient, _| {
                let (own, of_weight) = (own.clone(), gradient.clone());
                let of_input = (gradient * usage.value()?)?;
                usage.gradient(move |_| Ok((own * of_weight)?))?;
                Ok(vec![Some(of_input)])
            })?;
            Ok(Value::invariant(tensor))
        }
    }

    #[test]
    fn gradients_are_those_of_one_run() {
        let numbers = |values: &[f64]| Tensor::new(values, &Device::Cpu).unwrap();
        let weight = Parameter::new("w", Part::all(&[2]), Spread::invariant(), &numbers(&[5.0, 7.0])).unwrap();
        let runs = Arc::new(AtomicUsize::new(0));
        let x = Var::from_tensor(&numbers(&[2.0, 3.0])).unwrap();
        let input = Value::invariant((x.as_tensor() * 1.0).unwrap());
        let output = recompute(&input, scaled(&weight, &runs)).unwrap();
        assert_eq!((runs.load(Ordering::Relaxed), weight.open_uses()), (1, 0));
        let gradients = (output.tensor() * 10.0).unwrap().sum_all().unwrap().backward().unwrap();
        assert_eq!(gradients.get(&x).unwrap().to_vec1::<f64>().unwrap(), [10.0 * 5.0 * 4.0, 10.0 * 7.0 * 6.0]);
        assert_eq!(weight.take_gradient().unwrap().to_vec1::<f64>().unwrap(), [40.0, 90.0]);
        assert_eq!((runs.load(Ordering::Relaxed), weight.open_uses()), (2, 0));
        let once = without_gradients(|| recompute(&input, scaled(&weight, &runs))).unwrap();
        assert!(!once.tensor().track_op() && runs.load(Ordering::Relaxed) == 3);
    }

    #[test]
    fn a_segment_may_give_back_its_input() {
        let x = Var::new(&[1f64, 2.0], &Device::Cpu).unwrap();
        let output = recompute(&Value::invariant(x.as_tensor().clone()), |input| Ok(input.clone())).unwrap();
        let gradients = output.tensor().sum_all().unwrap().backward().unwrap();
        assert_eq!(gradients.get(&x).unwrap().to_vec1::<f64>().unwrap(), [1.0, 1.0]);
        assert_eq!(x.as_tensor().to_vec1::<f64>().unwrap(), [1.0, 2.0]);
    }
}
