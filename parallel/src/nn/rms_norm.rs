//! Root mean square norm: `y = x / sqrt(mean(x²) + ε) * w`, over the last dimension.

use std::panic::Location;
use std::sync::Arc;

use candle_core::{D, Tensor};

use crate::autograd::{Output, function};
use crate::error::Result;
use crate::parameter::{Builder, Init, Parameter, Part};
use crate::tensor::{TensorParallel, applies, narrow_to, rows, wide};
use crate::value::Value;

/// A norm with a weight of the last dimension's size, which begins with ones.
pub struct RmsNorm {
    weight: Parameter,
    epsilon: f64,
    tp: TensorParallel,
}

impl RmsNorm {
    /// Makes the parameter, `weight`, for activations between layers.
    ///
    /// # Errors
    /// There is such a parameter.
    pub fn new(builder: &Builder, width: usize, epsilon: f64, tp: &TensorParallel) -> Result<RmsNorm> {
        let weight = builder.parameter("weight", Part::all(&[width]), tp.shared(), Init::Ones)?;
        Ok(RmsNorm { weight, epsilon, tp: tp.clone() })
    }

    /// The input, normed: of the same shape and kind.
    ///
    /// # Errors
    /// The input is of a kind for which the weight's gradient would be wrong, or of another width.
    #[track_caller]
    pub fn forward(&self, input: &Value) -> Result<Value> {
        applies(&self.weight, input, self.tp.axis(), Location::caller())?;
        let usage = Arc::new(self.weight.used());
        let (own, epsilon) = (input.tensor().detach(), self.epsilon);
        let output = normed(&own, epsilon)?.0.broadcast_mul(&wide(&usage.value()?)?)?;
        let output = Output::Fresh(narrow_to(own.dtype(), &output)?);
        let tensor = function("rms_norm", &[input.tensor()], output, move |gradient, _| {
            let (hat, inverse) = normed(&own, epsilon)?;
            let gradient = wide(gradient)?;
            let of_hat = gradient.broadcast_mul(&wide(&usage.value()?)?)?;
            let along = (&of_hat * &hat)?.mean_keepdim(D::Minus1)?;
            let of_input = (of_hat - hat.broadcast_mul(&along)?)?.broadcast_mul(&inverse)?;
            usage.gradient(move |usage| narrow_to(usage.parameter().dtype(), &rows(&(gradient * hat)?)?.sum(0)?))?;
            Ok(vec![Some(narrow_to(own.dtype(), &of_input)?)])
        })?;
        Ok(Value::new(tensor, input.spread().clone()))
    }
}

/// The input over its root mean square, and one over that.
fn normed(input: &Tensor, epsilon: f64) -> Result<(Tensor, Tensor)> {
    let input = wide(input)?;
    let inverse = (input.sqr()?.mean_keepdim(D::Minus1)? + epsilon)?.sqrt()?.recip()?;
    Ok((input.broadcast_mul(&inverse)?, inverse))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::group::Group;
    use crate::mesh::Axis;
    use crate::nn::testing::{builder, checked, numbers};
    use crate::value::{Kind, Spread};
    use candle_core::{DType, Device};
    use paceline_comm::Communicator;

    #[test]
    fn its_gradients_are_those_of_differences() {
        let builder = builder();
        let norm = RmsNorm::new(&builder, 5, 1e-5, &TensorParallel::alone().unwrap()).unwrap();
        norm.weight.set(&numbers(3, &[5])).unwrap();
        checked(&builder, &[&[2, 3, 5]], |inputs| norm.forward(&inputs[0]));
        let ones = Value::invariant(Tensor::ones((1, 5), DType::F64, &Device::Cpu).unwrap());
        norm.weight.set(&Tensor::ones(5, DType::F64, &Device::Cpu).unwrap()).unwrap();
        let output = norm.forward(&ones).unwrap().tensor().to_vec2::<f64>().unwrap();
        assert!(output[0].iter().all(|number| (number - 1.0 / (1.0f64 + 1e-5).sqrt()).abs() < 1e-15));
    }

    #[test]
    fn a_weight_whose_gradients_would_not_be_added_is_refused() {
        for comm in Communicator::in_process(2).unwrap() {
            let group = Group::of(comm, Axis::Tp);
            for (sequence, kind, fits) in [
                (false, Kind::Invariant, true),
                (false, Kind::Varying, false),
                (false, Kind::Replicated, false),
                (true, Kind::Varying, true),
                (true, Kind::Invariant, false),
                (true, Kind::Partial, false),
            ] {
                let tp = TensorParallel { group: group.clone(), sequence };
                let norm = RmsNorm::new(&builder(), 4, 1e-5, &tp).unwrap();
                let input = Value::new(numbers(1, &[2, 4]), Spread::invariant().with(Axis::Tp, kind));
                let result = norm.forward(&input);
                assert_eq!(result.is_ok(), fits, "sequence {sequence}, {kind:?}");
                if let Err(error) = result {
                    assert!(matches!(error, Error::Spread { .. }) && error.to_string().contains("rms_norm.rs"));
                }
            }
        }
    }
}
