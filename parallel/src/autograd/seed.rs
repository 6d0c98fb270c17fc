//! A backward pass from gradients that are given: what a pipeline stage does, and a recomputed segment.

use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, CustomOp1, Layout, Shape, Tensor};

use crate::error::{Error, Result};

/// Runs the backward pass of some tensors, whose gradients are given; what it finds for variables that are part of the graph.
///
/// # Errors
/// A gradient's shape isn't its tensor's, there is nothing to begin with, or a function on the way fails.
pub fn backward_from(outputs: &[(&Tensor, &Tensor)]) -> Result<GradStore> {
    let mut total: Option<Tensor> = None;
    for (output, gradient) in outputs {
        if output.dims() != gradient.dims() {
            let (is, given) = (output.dims(), gradient.dims());
            return Err(Error::invalid(format!("a gradient of {given:?} was given for a tensor of {is:?}")));
        }
        let seed = output.apply_op1(Seed(gradient.detach()))?;
        total = Some(match total {
            Some(total) => (total + seed)?,
            None => seed,
        });
    }
    let total = total.ok_or_else(|| Error::invalid("a backward pass needs an output to begin with"))?;
    Ok(total.backward()?)
}

/// A variable's gradient; zeros if the pass has not come by.
///
/// # Errors
/// Zeros can't be made.
pub fn gradient_of(found: &GradStore, variable: &Tensor) -> Result<Tensor> {
    Ok(match found.get(variable) {
        Some(gradient) => gradient.detach(),
        None => variable.zeros_like()?.detach(),
    })
}

/// A scalar whose gradient with respect to its input is what was given.
struct Seed(Tensor);

impl CustomOp1 for Seed {
    fn name(&self) -> &'static str {
        "seed"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        Ok((CpuStorage::F32(vec![0.0]), Shape::from(())))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, _: &Tensor) -> candle_core::Result<Option<Tensor>> {
        Ok(Some(self.0.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, Var};

    #[test]
    fn the_gradient_is_the_one_that_was_given() {
        let x = Var::new(&[1f64, 2.0], &Device::Cpu).unwrap();
        let (y, z) = ((x.as_tensor() * 3.0).unwrap(), x.as_tensor().sqr().unwrap());
        let seed = Tensor::new(&[10f64, 100.0], &Device::Cpu).unwrap();
        let found = backward_from(&[(&y, &seed), (&z, &seed)]).unwrap();
        assert_eq!(gradient_of(&found, &x).unwrap().to_vec1::<f64>().unwrap(), [30.0 + 20.0, 300.0 + 400.0]);
        let other = Var::new(&[1f64], &Device::Cpu).unwrap();
        assert_eq!(gradient_of(&found, &other).unwrap().to_vec1::<f64>().unwrap(), [0.0]);
    }

    #[test]
    fn shapes_must_agree() {
        let x = Var::new(&[1f64, 2.0], &Device::Cpu).unwrap();
        let seed = Tensor::new(&[1f64], &Device::Cpu).unwrap();
        assert!(backward_from(&[(x.as_tensor(), &seed)]).is_err_and(|error| error.to_string().contains("[1]")));
    }
}
