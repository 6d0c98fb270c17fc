//! What stands between the two matrices of a feed-forward layer.

use candle_core::{D, Tensor};

use crate::autograd::{Output, function};
use crate::error::{Error, Result};
use crate::tensor::{narrow_to, wide};
use crate::value::Value;

/// sqrt(2 / π)
const SLOPE: f64 = 0.797_884_560_802_865_4;
const CUBIC: f64 = 0.044_715;

/// The Gaussian error linear unit, by its usual approximation
/// `x / 2 * (1 + tanh(sqrt(2 / π) * (x + 0.044715 x³)))`.
///
/// # Errors
/// The input is partial along some axis.
#[track_caller]
pub fn gelu(input: &Value) -> Result<Value> {
    input.map("gelu", |input| {
        let own = input.detach();
        let wide_input = wide(&own)?;
        let output = ((bend(&wide_input)? + 1.0)? * wide_input)?.affine(0.5, 0.0)?;
        function("gelu", &[input], Output::Fresh(narrow_to(own.dtype(), &output)?), move |gradient, _| {
            let x = wide(&own)?;
            let bend = bend(&x)?;
            let inner = x.sqr()?.affine(3.0 * CUBIC * SLOPE, SLOPE)?;
            let outer = (bend.sqr()?.affine(-1.0, 1.0)? * (x * inner)?)?;
            let slope = ((bend + 1.0)? + outer)?.affine(0.5, 0.0)?;
            Ok(vec![Some(narrow_to(own.dtype(), &(wide(gradient)? * slope)?)?)])
        })
    })
}

fn bend(x: &Tensor) -> Result<Tensor> {
    Ok((x.sqr()?.affine(CUBIC * SLOPE, SLOPE)? * x)?.tanh()?)
}

/// `gate * sigmoid(gate) * up`, of an input whose last dimension has all gates and then all ups.
///
/// # Errors
/// The input is partial along some axis, or its last dimension is odd.
#[track_caller]
pub fn swiglu(input: &Value) -> Result<Value> {
    input.map("swiglu", |input| {
        let own = input.detach();
        let (gate, up) = halves(&wide(&own)?)?;
        let output = ((&gate * sigmoid(&gate)?)? * up)?;
        function("swiglu", &[input], Output::Fresh(narrow_to(own.dtype(), &output)?), move |gradient, _| {
            let (gate, up) = halves(&wide(&own)?)?;
            let (gradient, sigmoid) = (wide(gradient)?, sigmoid(&gate)?);
            let of_up = ((&gradient * &gate)? * &sigmoid)?;
            let slope = (((sigmoid.affine(-1.0, 1.0)? * gate)? + 1.0)? * sigmoid)?;
            let of_gate = ((gradient * up)? * slope)?;
            Ok(vec![Some(narrow_to(own.dtype(), &Tensor::cat(&[of_gate, of_up], D::Minus1)?)?)])
        })
    })
}

fn sigmoid(x: &Tensor) -> Result<Tensor> {
    Ok((x.neg()?.exp()? + 1.0)?.recip()?)
}

fn halves(input: &Tensor) -> Result<(Tensor, Tensor)> {
    let width = input.dim(D::Minus1)?;
    if !width.is_multiple_of(2) {
        return Err(Error::invalid(format!(
            "swiglu takes as many gates as ups, and is given {width} of both together"
        )));
    }
    let half = |first| Ok::<_, Error>(input.narrow(D::Minus1, first, width / 2)?.contiguous()?);
    Ok((half(0)?, half(width / 2)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::testing::{builder, checked};
    use candle_core::Device;

    #[test]
    fn their_gradients_are_those_of_differences() {
        checked(&builder(), &[&[2, 3, 4]], |inputs| gelu(&inputs[0]));
        checked(&builder(), &[&[2, 3, 4]], |inputs| swiglu(&inputs[0]));
    }

    #[test]
    fn known_values() {
        let input = Value::invariant(Tensor::new(&[[-1f64, 0.0, 1.0, 1000.0]], &Device::Cpu).unwrap());
        let gelu = gelu(&input).unwrap().tensor().to_vec2::<f64>().unwrap();
        for (is, want) in gelu[0].iter().zip([-0.158_808_009_4, 0.0, 0.841_191_990_6, 1000.0]) {
            assert!((is - want).abs() < 1e-9, "{gelu:?}");
        }
        let input = Value::invariant(Tensor::new(&[[-1000f64, 1.0, 7.0, 2.0]], &Device::Cpu).unwrap());
        let swiglu = swiglu(&input).unwrap().tensor().to_vec2::<f64>().unwrap();
        assert!(swiglu[0][0] == 0.0 && (swiglu[0][1] - 2.0 * 0.731_058_578_6).abs() < 1e-9, "{swiglu:?}");
    }
}
