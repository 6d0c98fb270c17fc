//! Linear layers cut along their inputs: each rank has some of them, and the outputs are sums over ranks.

use std::panic::Location;
use std::sync::Arc;

use paceline_comm::ReduceOp;

use super::TensorParallel;
use super::pending::rows;
use super::tensor_parallel::SEQUENCE;
use crate::autograd::{Output, function};
use crate::error::{Error, Result};
use crate::parameter::{Builder, Init, Parameter, Part};
use crate::value::{Kind, Value};

/// The matrix of a [`RowLinear`], [outputs, inputs].
#[derive(Clone, PartialEq, Debug)]
pub struct Rows {
    /// How many inputs there are on all ranks together. Where they can't be cut evenly the last ranks have padding, which is
    /// zero.
    pub inputs: usize,
    /// How many outputs there are.
    pub outputs: usize,
    /// How the weight begins.
    pub init: Init,
    /// Whether there is a bias, which begins with zeros.
    pub bias: bool,
}

/// A linear layer cut along the inputs. Its bias, which all ranks have, is added once, after the sum.
pub struct RowLinear {
    weight: Parameter,
    bias: Option<Parameter>,
    tp: TensorParallel,
}

impl RowLinear {
    /// Makes the layer's parameters, `weight` and `bias`.
    ///
    /// # Errors
    /// There are such parameters.
    pub fn new(builder: &Builder, matrix: &Rows, tp: &TensorParallel) -> Result<RowLinear> {
        let part = Part::all(&[matrix.outputs, matrix.inputs]).piece(1, tp.rank(), tp.size());
        let weight = builder.parameter("weight", part, tp.cut(), matrix.init)?;
        let bias = || builder.parameter("bias", Part::all(&[matrix.outputs]), tp.shared(), Init::Zeros);
        let bias = matrix.bias.then(bias).transpose()?;
        Ok(RowLinear { weight, bias, tp: tp.clone() })
    }

    /// The outputs, [.., outputs] and invariant, of this rank's inputs, [.., its part]; where the sequence is cut, those of this
    /// rank's positions.
    ///
    /// # Errors
    /// The input isn't varying, is of another width, or a collective fails.
    #[track_caller]
    pub fn forward(&self, input: &Value) -> Result<Value> {
        self.check(input, Location::caller())?;
        let (weight, bias) = (Arc::new(self.weight.used()), self.bias.as_ref().map(|bias| Arc::new(bias.used())));
        let own = input.tensor().detach().contiguous()?;
        let mut dims = own.dims().to_vec();
        *dims.last_mut().expect("a matrix at least") = self.weight.part().shape()[0];
        let partial = rows(&own)?.matmul(&weight.value()?.t()?)?.reshape(dims)?;
        let sum = if self.tp.cuts_sequence() {
            self.tp.group.reduce_scatter(&partial, SEQUENCE, ReduceOp::Sum)?
        } else {
            self.tp.group.all_reduce(&partial, ReduceOp::Sum)?
        };
        drop(partial);
        let output =
            bias.as_ref().map_or(Ok(sum.clone()), |bias| Ok::<_, Error>(sum.broadcast_add(&bias.value()?)?))?;
        drop(sum);
        let tp = self.tp.clone();
        let tensor = function("row_linear", &[input.tensor()], Output::Fresh(output), move |gradient, _| {
            let gradient = gradient.contiguous()?;
            if let Some(bias) = &bias {
                let of_output = rows(&gradient)?;
                bias.gradient(move |_| Ok(of_output.sum(0)?))?;
            }
            let gradient =
                rows(&if tp.cuts_sequence() { tp.group.all_gather(&gradient, SEQUENCE)? } else { gradient })?;
            let of_input = gradient.matmul(&weight.value()?)?.reshape(own.shape())?;
            let input = rows(&own)?;
            weight.gradient(move |_| Ok(gradient.t()?.matmul(&input)?))?;
            Ok(vec![Some(of_input)])
        })?;
        let leaving = if self.tp.sequence { Kind::Varying } else { Kind::Invariant };
        Ok(self.tp.value(tensor, input, leaving))
    }

    fn check(&self, input: &Value, place: &'static Location<'static>) -> Result<()> {
        let (name, inputs) = (self.weight.name(), self.weight.part().shape()[1]);
        self.tp.expect(input, Kind::Varying, name, place)?;
        if input.dims().len() < 2 || input.dims().last() != Some(&inputs) {
            let dims = input.dims();
            return Err(Error::invalid(format!("{name} takes inputs of [.., {inputs}], and is given {dims:?}")));
        }
        if self.tp.cuts_sequence() {
            self.tp.positions_here(input.dims()[SEQUENCE])?;
        }
        Ok(())
    }
}
