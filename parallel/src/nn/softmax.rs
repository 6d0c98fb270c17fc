//! Softmax over the last dimension.

use candle_core::{D, Tensor};

use crate::autograd::{Output, function};
use crate::error::Result;
use crate::tensor::{narrow_to, wide};
use crate::value::Value;

/// `exp(x) / sum(exp(x))` over the last dimension, which must be whole.
///
/// # Errors
/// The input is partial along some axis.
#[track_caller]
pub fn softmax(input: &Value) -> Result<Value> {
    input.map("softmax", |input| {
        let output = Output::Fresh(narrow_to(input.dtype(), &probabilities(&wide(input)?)?)?);
        function("softmax", &[input], output, |gradient, output| {
            let of_input = through(&wide(output)?, &wide(gradient)?)?;
            Ok(vec![Some(narrow_to(gradient.dtype(), &of_input)?)])
        })
    })
}

pub(super) fn probabilities(scores: &Tensor) -> Result<Tensor> {
    let exponentials = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?)?.exp()?;
    Ok(exponentials.broadcast_div(&exponentials.sum_keepdim(D::Minus1)?)?)
}

/// The gradient of scores, from their probabilities and the gradient of these.
pub(super) fn through(probabilities: &Tensor, gradient: &Tensor) -> Result<Tensor> {
    let along = (gradient * probabilities)?.sum_keepdim(D::Minus1)?;
    Ok((gradient.broadcast_sub(&along)? * probabilities)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::testing::{builder, checked};
    use candle_core::Device;

    #[test]
    fn its_gradient_is_that_of_differences() {
        checked(&builder(), &[&[2, 3, 4]], |inputs| softmax(&inputs[0]));
    }

    #[test]
    fn large_scores_do_not_overflow() {
        let scores = Value::invariant(Tensor::new(&[[1000f32, 1000.0, f32::NEG_INFINITY]], &Device::Cpu).unwrap());
        let output = softmax(&scores).unwrap().tensor().to_vec2::<f32>().unwrap();
        assert_eq!(output, [[0.5, 0.5, 0.0]]);
    }
}
