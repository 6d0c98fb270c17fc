//! Learned embeddings of positions, added to activations between layers.

use std::panic::Location;
use std::sync::Arc;

use candle_core::{Device, Tensor};

use crate::autograd::{Output, function};
use crate::error::{Error, Result};
use crate::parameter::{Builder, Init, Parameter, Part};
use crate::tensor::{TensorParallel, applies};
use crate::value::Value;

/// A table of [positions, width], which each rank has.
pub struct PositionEmbedding {
    weight: Parameter,
    tp: TensorParallel,
}

impl PositionEmbedding {
    /// Makes the table, `weight`.
    ///
    /// # Errors
    /// There is such a parameter.
    pub fn new(builder: &Builder, shape: [usize; 2], init: Init, tp: &TensorParallel) -> Result<PositionEmbedding> {
        let weight = builder.parameter("weight", Part::all(&shape), tp.shared(), init)?;
        Ok(PositionEmbedding { weight, tp: tp.clone() })
    }

    /// Activations of [batch, positions, width] and the rows of their positions, added.
    ///
    /// # Errors
    /// A position is beyond the table, or the activations are of a kind for which the table's gradient would be wrong, or of
    /// another shape.
    #[track_caller]
    pub fn forward(&self, input: &Value, positions: &[u32]) -> Result<Value> {
        applies(&self.weight, input, self.tp.axis(), Location::caller())?;
        let rows = self.weight.part().shape()[0];
        if let Some(position) = positions.iter().find(|position| **position as usize >= rows) {
            let name = self.weight.name();
            return Err(Error::invalid(format!("{name} has rows for {rows} positions, and is given {position}")));
        }
        let usage = Arc::new(self.weight.used());
        let places = Tensor::new(positions, &Device::Cpu)?;
        let output = input.tensor().detach().broadcast_add(&usage.value()?.index_select(&places, 0)?)?;
        let tensor = function("position_embedding", &[input.tensor()], Output::Fresh(output), move |gradient, _| {
            let (places, own) = (places.clone(), gradient.clone());
            usage.gradient(move |usage| {
                let zeros = Tensor::zeros(usage.parameter().part().shape(), own.dtype(), &Device::Cpu)?;
                Ok(zeros.index_add(&places, &own.sum(0)?.contiguous()?, 0)?)
            })?;
            Ok(vec![Some(gradient.clone())])
        })?;
        Ok(Value::new(tensor, input.spread().clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::testing::{builder, checked};

    #[test]
    fn its_gradients_are_those_of_differences() {
        let builder = builder();
        let alone = TensorParallel::alone().unwrap();
        let table = PositionEmbedding::new(&builder, [6, 4], Init::Normal { std: 1.0 }, &alone).unwrap();
        checked(&builder, &[&[2, 3, 4]], |inputs| table.forward(&inputs[0], &[5, 0, 3]));
        let short =
            table.forward(&Value::invariant(Tensor::zeros((1, 1, 4), builder.dtype(), &Device::Cpu).unwrap()), &[6]);
        assert!(short.is_err_and(|error| error.to_string().contains("given 6")));
    }
}
