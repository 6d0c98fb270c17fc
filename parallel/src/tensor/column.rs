//! Linear layers cut along their outputs: each rank computes some of them, of the whole input.
//!
//! Several matrices that take the same input (query, key and value; gate and up) are one layer: their gradients of the input
//! are one sum, and cross the ranks once.

use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;

use candle_core::Tensor;

use super::TensorParallel;
use super::pending::{Pending, Whole, rows};
use super::tensor_parallel::SEQUENCE;
use crate::autograd::{Output, function, is_deferring};
use crate::error::{Error, Result};
use crate::parameter::{Builder, Init, Parameter, Part, Usage};
use crate::value::{Kind, Value};

/// One matrix of a [`ColumnLinear`], [outputs, inputs].
#[derive(Clone, PartialEq, Debug)]
pub struct Columns {
    /// Its place below the layer's: the parameters are `name.weight` and `name.bias`.
    pub name: &'static str,
    /// How many outputs there are on all ranks together. Where they can't be cut evenly the last ranks have padding, which is
    /// zero.
    pub outputs: usize,
    /// If not each rank has outputs of its own: which of them it uses. It then has the whole matrix, and gradients of the part
    /// that it uses.
    pub used: Option<Range<usize>>,
    /// How the weight begins.
    pub init: Init,
    /// Whether there is a bias, which begins with zeros.
    pub bias: bool,
}

/// A linear layer of one or more matrices, cut along the outputs.
pub struct ColumnLinear {
    pieces: Vec<Piece>,
    tp: TensorParallel,
}

struct Piece {
    weight: Parameter,
    bias: Option<Parameter>,
    /// The rows of the weight that are used here.
    rows: Range<usize>,
}

/// How an input comes to be whole on each rank.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entering {
    /// It is, and its gradient is left in parts, one on each rank.
    Replicated,
    /// It is, and its gradient is summed.
    Invariant,
    /// Each rank has some positions of the sequence.
    Varying,
}

impl ColumnLinear {
    /// Makes the layer's parameters.
    ///
    /// # Errors
    /// There are such parameters, or a range that is used is not within a matrix's outputs.
    pub fn new(builder: &Builder, inputs: usize, columns: &[Columns], tp: &TensorParallel) -> Result<ColumnLinear> {
        let piece = |columns: &Columns| Piece::new(&builder.at(columns.name), inputs, columns, tp);
        Ok(ColumnLinear { pieces: columns.iter().map(piece).collect::<Result<_>>()?, tp: tp.clone() })
    }

    /// A layer without bias of a weight that is there already: a head that is tied to an embedding.
    #[must_use]
    pub fn of(weight: Parameter, tp: &TensorParallel) -> ColumnLinear {
        let rows = 0..weight.part().shape()[0];
        ColumnLinear { pieces: vec![Piece { weight, bias: None, rows }], tp: tp.clone() }
    }

    /// How many outputs of each matrix this rank computes; they come one after another.
    #[must_use]
    pub fn widths(&self) -> Vec<usize> {
        self.pieces.iter().map(|piece| piece.rows.len()).collect()
    }

    /// This rank's outputs, [.., sum of widths], of an input of [.., inputs] that is invariant, or of [batch, sequence, inputs]
    /// that varies along the sequence.
    ///
    /// # Errors
    /// The input is of another kind or width, or a collective fails.
    #[track_caller]
    pub fn forward(&self, input: &Value) -> Result<Value> {
        let entering = self.entering(input, Location::caller())?;
        let part = input.tensor().detach().contiguous()?;
        let whole = match entering {
            Entering::Varying => self.tp.group.all_gather(&part, SEQUENCE)?,
            _ => part.clone(),
        };
        let uses: Vec<Use> = self.pieces.iter().map(Piece::used).collect();
        let matrix = rows(&whole)?;
        let outputs = uses.iter().map(|piece| piece.output(&matrix)).collect::<Result<Vec<_>>>()?;
        let output = if let [one] = &outputs[..] { one.clone() } else { Tensor::cat(&outputs, 1)? };
        drop(outputs);
        let mut dims = whole.dims().to_vec();
        *dims.last_mut().expect("a matrix at least") = output.dim(1)?;
        let output = output.reshape(dims)?;
        let (group, input_dims) = (self.tp.group.clone(), whole.dims().to_vec());
        let tensor = function("column_linear", &[input.tensor()], Output::Fresh(output), move |gradient, _| {
            let whole = Arc::new(match entering {
                Entering::Varying => Whole::of_part(&group, part.clone()),
                _ => Whole::here(&group, part.clone()),
            });
            // Where the weights' gradients are put off, so is what only they need.
            if !is_deferring() {
                whole.start()?;
            }
            let gradients = cut(&rows(&gradient.contiguous()?)?, &uses)?;
            let mut sum: Option<Tensor> = None;
            for (piece, gradient) in uses.iter().zip(&gradients) {
                let of_input = gradient.matmul(&piece.weight()?)?;
                sum = Some(sum.map_or(Ok(of_input.clone()), |sum| sum + of_input)?);
            }
            let sum = sum.ok_or_else(|| Error::invalid("a linear layer without a matrix"))?.reshape(&input_dims[..])?;
            let pending = match entering {
                Entering::Replicated => None,
                Entering::Invariant => Some(Pending::all_reduce(&group, &sum)?),
                Entering::Varying => Some(Pending::reduce_scatter(&group, &sum)?),
            };
            for (piece, gradient) in uses.iter().zip(gradients) {
                piece.gradients(gradient, &whole)?;
            }
            Ok(vec![Some(pending.map_or(Ok(sum), Pending::wait)?)])
        })?;
        Ok(self.tp.value(tensor, input, Kind::Varying))
    }

    fn entering(&self, input: &Value, place: &'static Location<'static>) -> Result<Entering> {
        let inputs = self.pieces[0].weight.part().shape()[1];
        let name = self.pieces[0].weight.name();
        if input.dims().len() < 2 || input.dims().last() != Some(&inputs) {
            let dims = input.dims();
            return Err(Error::invalid(format!("{name} takes inputs of [.., {inputs}], and is given {dims:?}")));
        }
        if self.tp.size() == 1 {
            return Ok(Entering::Replicated);
        }
        match (input.along(self.tp.axis()), self.tp.sequence) {
            (Kind::Replicated, _) => Ok(Entering::Replicated),
            (Kind::Invariant, false) => Ok(Entering::Invariant),
            (Kind::Varying, true) if input.dims().len() == 3 => Ok(Entering::Varying),
            (is, sequence) => {
                let takes = if sequence { "one that varies along the sequence" } else { "an invariant one" };
                let what = format!("{name}, cut along its outputs, takes {takes}, and is given a {} one", is.name());
                Err(self.tp.wrong(what, place))
            }
        }
    }
}

impl Piece {
    fn new(builder: &Builder, inputs: usize, columns: &Columns, tp: &TensorParallel) -> Result<Piece> {
        let Columns { name, outputs, used, init, bias } = columns;
        let (weight, bias_part) = (Part::all(&[*outputs, inputs]), Part::all(&[*outputs]));
        let (weight, bias_part, spread) = match used {
            None => (weight.piece(0, tp.rank(), tp.size()), bias_part.piece(0, tp.rank(), tp.size()), Kind::Varying),
            Some(_) => (weight, bias_part, Kind::Replicated),
        };
        let rows = used.clone().unwrap_or(0..weight.shape()[0]);
        if rows.start >= rows.end || rows.end > weight.shape()[0] {
            return Err(Error::invalid(format!("outputs {rows:?} of {name} are to be used, and it has {outputs}")));
        }
        let weight = builder.parameter("weight", weight, tp.spread(spread), *init)?;
        let bias = bias.then(|| builder.parameter("bias", bias_part, tp.spread(spread), Init::Zeros)).transpose()?;
        Ok(Piece { weight, bias, rows })
    }

    fn used(&self) -> Use {
        let bias = self.bias.as_ref().map(|bias| Arc::new(bias.used()));
        Use { weight: Arc::new(self.weight.used()), bias, rows: self.rows.clone() }
    }
}

struct Use {
    weight: Arc<Usage>,
    bias: Option<Arc<Usage>>,
    rows: Range<usize>,
}

impl Use {
    fn weight(&self) -> Result<Tensor> {
        Ok(self.weight.value()?.narrow(0, self.rows.start, self.rows.len())?)
    }

    fn output(&self, input: &Tensor) -> Result<Tensor> {
        let output = input.matmul(&self.weight()?.t()?)?;
        let Some(bias) = &self.bias else { return Ok(output) };
        Ok(output.broadcast_add(&bias.value()?.narrow(0, self.rows.start, self.rows.len())?)?)
    }

    fn gradients(&self, gradient: Tensor, whole: &Arc<Whole>) -> Result<()> {
        if let Some(bias) = &self.bias {
            let (rows, gradient) = (self.rows.clone(), gradient.clone());
            bias.gradient(move |usage| among(&gradient.sum(0)?, &rows, usage))?;
        }
        let (rows, whole) = (self.rows.clone(), whole.clone());
        self.weight.gradient(move |usage| among(&gradient.t()?.matmul(&whole.rows()?)?, &rows, usage))
    }
}

/// The gradient of some rows among zeros for all others.
fn among(gradient: &Tensor, rows: &Range<usize>, usage: &Usage) -> Result<Tensor> {
    let all = usage.parameter().part().shape()[0];
    Ok(gradient.pad_with_zeros(0, rows.start, all - rows.end)?)
}

/// Each matrix's columns of a gradient.
fn cut(gradient: &Tensor, uses: &[Use]) -> Result<Vec<Tensor>> {
    let mut begin = 0;
    let columns = |piece: &Use| {
        let columns = gradient.narrow(1, begin, piece.rows.len())?.contiguous()?;
        begin += piece.rows.len();
        Ok(columns)
    };
    uses.iter().map(columns).collect()
}
