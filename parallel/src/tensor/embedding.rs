//! Token embeddings cut along the vocabulary: each rank looks up the tokens whose rows it has, and the others' are zero.

use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use paceline_comm::ReduceOp;

use super::TensorParallel;
use super::tensor_parallel::SEQUENCE;
use crate::autograd::{Output, function};
use crate::error::{Error, Result};
use crate::parameter::{Builder, Init, Parameter, Part};
use crate::value::{Spread, Value};

/// A table of [vocabulary, width], cut along the vocabulary. Where that can't be cut evenly the last ranks have padding, which
/// no token refers to.
pub struct Embedding {
    weight: Parameter,
    tp: TensorParallel,
}

impl Embedding {
    /// Makes the table, `weight`; `spread` says what it is along axes other than the group's.
    ///
    /// # Errors
    /// There is such a parameter.
    pub fn new(
        builder: &Builder,
        shape: [usize; 2],
        spread: Spread,
        init: Init,
        tp: &TensorParallel,
    ) -> Result<Embedding> {
        let part = Part::all(&shape).piece(0, tp.rank(), tp.size());
        let spread = spread.with(tp.axis(), tp.cut().along(tp.axis()));
        Ok(Embedding { weight: builder.parameter("weight", part, spread, init)?, tp: tp.clone() })
    }

    /// The table.
    #[must_use]
    pub fn weight(&self) -> &Parameter {
        &self.weight
    }

    /// The tokens' rows, [batch, sequence, width], of tokens of [batch, sequence] that are the same on all ranks: invariant, or
    /// varying where the sequence is cut.
    ///
    /// # Errors
    /// A token isn't in the vocabulary, the tokens are no integers, or a collective fails.
    pub fn forward(&self, tokens: &Tensor) -> Result<Value> {
        let (batch, len) = tokens.dims2()?;
        let usage = Arc::new(self.weight.used());
        let found = Arc::new(self.lookup(tokens)?);
        let width = self.weight.part().shape()[1];
        let own = found.masked(&usage.value()?.index_select(&found.places, 0)?)?.reshape((batch, len, width))?;
        let output = if self.tp.cuts_sequence() {
            self.tp.positions_here(len)?;
            self.tp.group.reduce_scatter(&own, SEQUENCE, ReduceOp::Sum)?
        } else {
            self.tp.group.all_reduce(&own, ReduceOp::Sum)?
        };
        drop(own);
        let tp = self.tp.clone();
        let tensor = function("embedding", &[], Output::Fresh(output), move |gradient, _| {
            let gradient = gradient.contiguous()?;
            let gradient = if tp.cuts_sequence() { tp.group.all_gather(&gradient, SEQUENCE)? } else { gradient };
            let found = found.clone();
            usage.gradient(move |usage| {
                let gradient = found.masked(&gradient.reshape(((), width))?)?;
                let zeros = Tensor::zeros(usage.parameter().part().shape(), gradient.dtype(), &Device::Cpu)?;
                Ok(zeros.index_add(&found.places, &gradient, 0)?)
            })?;
            Ok(Vec::new())
        })?;
        Ok(Value::new(tensor, self.tp.between_layers()))
    }

    fn lookup(&self, tokens: &Tensor) -> Result<Found> {
        let part = self.weight.part();
        let (vocabulary, first, rows) = (part.whole()[0], part.first()[0] as i64, part.shape()[0] as i64);
        let ids = tokens.flatten_all()?.to_dtype(DType::I64)?.to_vec1::<i64>()?;
        if let Some(id) = ids.iter().find(|id| !(0..vocabulary as i64).contains(*id)) {
            let name = self.weight.name();
            return Err(Error::invalid(format!("{name} has rows for {vocabulary} tokens, and is given token {id}")));
        }
        let local = |id: &i64| (first..first + rows).contains(id).then_some((id - first) as u32);
        let places: Vec<u32> = ids.iter().map(|id| local(id).unwrap_or(0)).collect();
        let here: Vec<f32> = ids.iter().map(|id| if local(id).is_some() { 1.0 } else { 0.0 }).collect();
        let here = Tensor::from_vec(here, (ids.len(), 1), &Device::Cpu)?.to_dtype(self.weight.dtype())?;
        let places = Tensor::from_vec(places, ids.len(), &Device::Cpu)?;
        Ok(Found { places, here: (self.tp.size() > 1).then_some(here) })
    }
}

/// Where the tokens' rows are in this rank's part.
struct Found {
    places: Tensor,
    /// 1 for tokens whose rows are here, 0 for all others; `None` if all are.
    here: Option<Tensor>,
}

impl Found {
    fn masked(&self, rows: &Tensor) -> Result<Tensor> {
        Ok(match &self.here {
            Some(here) => rows.broadcast_mul(here)?,
            None => rows.clone(),
        })
    }
}
