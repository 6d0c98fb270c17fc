//! Rotary position embedding: pairs of a head's numbers, turned by angles that grow with the position.
//!
//! The pairs are (i, i + size / 2), as in checkpoints of Llama by Hugging Face, and not neighbours.

use candle_core::{D, DType, Device, Tensor};

use crate::autograd::{Output, function};
use crate::error::{Error, Result};
use crate::tensor::{narrow_to, wide};
use crate::value::Value;

/// Cosines and sines of the angles of some positions, [positions, 1, size / 2].
#[derive(Clone, Debug)]
pub struct Rotation {
    cosines: Tensor,
    sines: Tensor,
}

impl Rotation {
    /// Pair i at position p is turned by `p / base^(2 i / size)`.
    ///
    /// # Errors
    /// The heads' size is odd.
    pub fn new(positions: &[u32], size: usize, base: f64, dtype: DType) -> Result<Rotation> {
        if !size.is_multiple_of(2) {
            return Err(Error::invalid(format!("heads of {size} numbers have no pairs to turn")));
        }
        let angle = |position: u32, pair: usize| f64::from(position) * base.powf(-2.0 * pair as f64 / size as f64);
        let angles: Vec<f64> =
            positions.iter().flat_map(|position| (0..size / 2).map(move |pair| angle(*position, pair))).collect();
        let angles = Tensor::from_vec(angles, (positions.len(), 1, size / 2), &Device::Cpu)?;
        let dtype = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        Ok(Rotation { cosines: angles.cos()?.to_dtype(dtype)?, sines: angles.sin()?.to_dtype(dtype)? })
    }

    fn turn(&self, heads: &Tensor, sines: &Tensor) -> Result<Tensor> {
        let half = heads.dim(D::Minus1)? / 2;
        let dtype = heads.dtype();
        let heads = wide(heads)?;
        let (one, two) = (heads.narrow(D::Minus1, 0, half)?, heads.narrow(D::Minus1, half, half)?);
        let turned_one = (one.broadcast_mul(&self.cosines)? - two.broadcast_mul(sines)?)?;
        let turned_two = (two.broadcast_mul(&self.cosines)? + one.broadcast_mul(sines)?)?;
        narrow_to(dtype, &Tensor::cat(&[turned_one, turned_two], D::Minus1)?)
    }
}

/// Heads of [batch, positions, heads, size], turned. Back, they are turned the other way.
///
/// # Errors
/// The input is partial along some axis, or of other positions or another size.
#[track_caller]
pub fn rope(input: &Value, rotation: &Rotation) -> Result<Value> {
    input.map("rope", |input| {
        let rotation = rotation.clone();
        let output = rotation.turn(&input.detach(), &rotation.sines)?;
        function("rope", &[input], Output::Fresh(output), move |gradient, _| {
            Ok(vec![Some(rotation.turn(gradient, &rotation.sines.neg()?)?)])
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::testing::{builder, checked, numbers};

    #[test]
    fn its_gradient_is_that_of_differences() {
        let rotation = Rotation::new(&[0, 7, 2], 4, 100.0, DType::F64).unwrap();
        checked(&builder(), &[&[2, 3, 2, 4]], |inputs| rope(&inputs[0], &rotation));
    }

    /// What attention sees of two heads depends on how far apart they are only.
    #[test]
    fn products_depend_on_the_distance() {
        let product = |query: u32, key: u32| {
            let turned = |seed, position| {
                let rotation = Rotation::new(&[position], 8, 100.0, DType::F64).unwrap();
                rope(&Value::invariant(numbers(seed, &[1, 1, 1, 8])), &rotation).unwrap().into_tensor()
            };
            (turned(0, query) * turned(1, key)).unwrap().sum_all().unwrap().to_scalar::<f64>().unwrap()
        };
        assert!((product(9, 4) - product(25, 20)).abs() < 1e-12);
        assert!((product(9, 4) - product(9, 5)).abs() > 1e-3);
    }
}
