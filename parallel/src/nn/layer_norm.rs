//! Layer norm: `y = (x - mean(x)) / sqrt(var(x) + ε) * w + b`, over the last dimension.

use std::panic::Location;
use std::sync::Arc;

use candle_core::{D, Tensor};

use crate::autograd::{Output, function};
use crate::error::Result;
use crate::parameter::{Builder, Init, Parameter, Part};
use crate::tensor::{TensorParallel, applies, narrow_to, rows, wide};
use crate::value::Value;

/// A norm with a weight, which begins with ones, and a bias, which begins with zeros, of the last dimension's size.
pub struct LayerNorm {
    weight: Parameter,
    bias: Parameter,
    epsilon: f64,
    tp: TensorParallel,
}

impl LayerNorm {
    /// Makes the parameters, `weight` and `bias`, for activations between layers.
    ///
    /// # Errors
    /// There are such parameters.
    pub fn new(builder: &Builder, width: usize, epsilon: f64, tp: &TensorParallel) -> Result<LayerNorm> {
        let weight = builder.parameter("weight", Part::all(&[width]), tp.shared(), Init::Ones)?;
        let bias = builder.parameter("bias", Part::all(&[width]), tp.shared(), Init::Zeros)?;
        Ok(LayerNorm { weight, bias, epsilon, tp: tp.clone() })
    }

    /// The input, normed: of the same shape and kind.
    ///
    /// # Errors
    /// The input is of a kind for which the parameters' gradients would be wrong, or of another width.
    #[track_caller]
    pub fn forward(&self, input: &Value) -> Result<Value> {
        let place = Location::caller();
        applies(&self.weight, input, self.tp.axis(), place)?;
        applies(&self.bias, input, self.tp.axis(), place)?;
        let (weight, bias) = (Arc::new(self.weight.used()), Arc::new(self.bias.used()));
        let (own, epsilon) = (input.tensor().detach(), self.epsilon);
        let scaled = normed(&own, epsilon)?.0.broadcast_mul(&wide(&weight.value()?)?)?;
        let output = scaled.broadcast_add(&wide(&bias.value()?)?)?;
        let output = Output::Fresh(narrow_to(own.dtype(), &output)?);
        let tensor = function("layer_norm", &[input.tensor()], output, move |gradient, _| {
            let (hat, inverse) = normed(&own, epsilon)?;
            let gradient = wide(gradient)?;
            let of_hat = gradient.broadcast_mul(&wide(&weight.value()?)?)?;
            let along = (&of_hat * &hat)?.mean_keepdim(D::Minus1)?;
            let mean = of_hat.mean_keepdim(D::Minus1)?;
            let of_input = (of_hat.broadcast_sub(&mean)? - hat.broadcast_mul(&along)?)?.broadcast_mul(&inverse)?;
            let of_bias = gradient.clone();
            weight.gradient(move |usage| narrow_to(usage.parameter().dtype(), &rows(&(gradient * hat)?)?.sum(0)?))?;
            bias.gradient(move |usage| narrow_to(usage.parameter().dtype(), &rows(&of_bias)?.sum(0)?))?;
            Ok(vec![Some(narrow_to(own.dtype(), &of_input)?)])
        })?;
        Ok(Value::new(tensor, input.spread().clone()))
    }
}

/// The input less its mean, over its standard deviation, and one over that.
fn normed(input: &Tensor, epsilon: f64) -> Result<(Tensor, Tensor)> {
    let input = wide(input)?;
    let centered = input.broadcast_sub(&input.mean_keepdim(D::Minus1)?)?;
    let inverse = (centered.sqr()?.mean_keepdim(D::Minus1)? + epsilon)?.sqrt()?.recip()?;
    Ok((centered.broadcast_mul(&inverse)?, inverse))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::testing::{builder, checked, numbers};

    #[test]
    fn its_gradients_are_those_of_differences() {
        let builder = builder();
        let norm = LayerNorm::new(&builder, 5, 1e-5, &TensorParallel::alone().unwrap()).unwrap();
        norm.weight.set(&numbers(3, &[5])).unwrap();
        norm.bias.set(&numbers(4, &[5])).unwrap();
        checked(&builder, &[&[2, 3, 5]], |inputs| norm.forward(&inputs[0]));
    }

    #[test]
    fn rows_have_mean_0_and_variance_1() {
        let norm = LayerNorm::new(&builder(), 8, 0.0, &TensorParallel::alone().unwrap()).unwrap();
        let output = norm.forward(&Value::invariant(numbers(1, &[3, 8]))).unwrap();
        for row in output.tensor().to_vec2::<f64>().unwrap() {
            assert!(row.iter().sum::<f64>().abs() < 1e-12);
            assert!((row.iter().map(|number| number * number).sum::<f64>() / 8.0 - 1.0).abs() < 1e-12);
        }
    }
}
