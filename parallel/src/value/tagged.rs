//! A tensor and what it is along each axis.

use std::panic::Location;

use candle_core::{Tensor, shape::Dim};
use paceline_comm::ReduceOp;

use super::kind::{Kind, Spread, Together};
use crate::autograd::{Output, function};
use crate::error::{Error, Result};
use crate::group::Group;
use crate::mesh::Axis;

/// A tensor, and what it is along each axis.
#[derive(Clone, Debug)]
pub struct Value {
    tensor: Tensor,
    spread: Spread,
}

impl Value {
    /// A tensor that is such along each axis: the caller knows.
    #[must_use]
    pub fn new(tensor: Tensor, spread: Spread) -> Value {
        Value { tensor, spread }
    }

    /// A tensor that is the same everywhere, and used alike.
    #[must_use]
    pub fn invariant(tensor: Tensor) -> Value {
        Value { tensor, spread: Spread::invariant() }
    }

    /// The tensor.
    #[must_use]
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// The tensor alone.
    #[must_use]
    pub fn into_tensor(self) -> Tensor {
        self.tensor
    }

    /// What it is.
    #[must_use]
    pub fn spread(&self) -> &Spread {
        &self.spread
    }

    /// What it is along an axis.
    #[must_use]
    pub fn along(&self, axis: Axis) -> Kind {
        self.spread.along(axis)
    }

    /// The sizes of its dimensions on this rank.
    #[must_use]
    pub fn dims(&self) -> &[usize] {
        self.tensor.dims()
    }

    /// The sum of two values.
    ///
    /// # Errors
    /// They are of kinds that don't go together, or of different shapes.
    #[track_caller]
    pub fn add(&self, other: &Value) -> Result<Value> {
        let place = Location::caller();
        let spread = Spread::of_all(&[&self.spread, &other.spread], Together::Sum, "a sum", place)?;
        Ok(Value { tensor: (&self.tensor + &other.tensor)?, spread })
    }

    /// The product of two values, element by element.
    ///
    /// # Errors
    /// They are of kinds that don't go together, or of different shapes.
    #[track_caller]
    pub fn mul(&self, other: &Value) -> Result<Value> {
        let place = Location::caller();
        let spread = Spread::of_all(&[&self.spread, &other.spread], Together::Product, "a product", place)?;
        Ok(Value { tensor: (&self.tensor * &other.tensor)?, spread })
    }

    /// This times a number.
    ///
    /// # Errors
    /// candle refuses.
    pub fn scale(&self, factor: f64) -> Result<Value> {
        Ok(Value { tensor: self.tensor.affine(factor, 0.0)?, spread: self.spread.clone() })
    }

    /// Another shape, or another order of dimensions: what moves elements and computes nothing.
    ///
    /// # Errors
    /// Those of `rearrange`.
    pub fn rearranged(&self, rearrange: impl FnOnce(&Tensor) -> candle_core::Result<Tensor>) -> Result<Value> {
        Ok(Value { tensor: rearrange(&self.tensor)?, spread: self.spread.clone() })
    }

    /// A differentiable function of the tensor, which isn't linear.
    ///
    /// # Errors
    /// The value is partial along some axis, or those of `map`.
    #[track_caller]
    pub fn map(&self, what: &str, map: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Value> {
        let place = Location::caller();
        let spread = Spread::of_all(&[&self.spread], Together::Any, what, place)?;
        Ok(Value { tensor: map(&self.tensor)?, spread })
    }

    /// The same elements, cut off from the graph.
    #[must_use]
    pub fn detach(&self) -> Value {
        Value { tensor: self.tensor.detach(), spread: self.spread.clone() }
    }

    #[track_caller]
    fn expect(&self, group: &Group, kind: Kind, what: &str) -> Result<()> {
        let is = self.along(group.axis());
        if is == kind || group.size() == 1 {
            return Ok(());
        }
        let (is, kind, axis) = (is.name(), kind.name(), group.axis());
        let what = format!("{what} along {axis} takes a {kind} value, and this one is {is}");
        Err(Error::Spread { what, place: Location::caller() })
    }

    fn now(&self, tensor: Tensor, group: &Group, kind: Kind) -> Value {
        let kind = if group.size() == 1 { Kind::Invariant } else { kind };
        Value { tensor, spread: self.spread.clone().with(group.axis(), kind) }
    }

    /// Megatron's f: from invariant to replicated, so that each rank may use it for something of its own. Back, the ranks'
    /// gradients are added.
    ///
    /// # Errors
    /// The value isn't invariant.
    #[track_caller]
    pub fn replicate(&self, group: &Group) -> Result<Value> {
        self.expect(group, Kind::Invariant, "replicate")?;
        if group.size() == 1 {
            return Ok(self.clone());
        }
        let along = group.clone();
        let output = Output::Shared(self.tensor.clone());
        let tensor = function("replicate", &[&self.tensor], output, move |gradient, _| {
            Ok(vec![Some(along.all_reduce(gradient, ReduceOp::Sum)?)])
        })?;
        Ok(self.now(tensor, group, Kind::Replicated))
    }

    /// Megatron's g: the sum of partial values, as an invariant one. Back, nothing is sent.
    ///
    /// # Errors
    /// The value isn't partial, or the collective fails.
    #[track_caller]
    pub fn reduce(&self, group: &Group) -> Result<Value> {
        self.expect(group, Kind::Partial, "reduce")?;
        if group.size() == 1 {
            return Ok(self.now(self.tensor.clone(), group, Kind::Invariant));
        }
        let sum = Output::Fresh(group.all_reduce(&self.tensor, ReduceOp::Sum)?);
        let tensor = function("reduce", &[&self.tensor], sum, |gradient, _| Ok(vec![Some(gradient.clone())]))?;
        Ok(self.now(tensor, group, Kind::Invariant))
    }

    /// This rank's part, along a dimension, of the sum of partial values. Back, the parts' gradients are gathered.
    ///
    /// # Errors
    /// The value isn't partial, the dimension can't be cut, or the collective fails.
    #[track_caller]
    pub fn reduce_scatter(&self, group: &Group, dim: impl Dim) -> Result<Value> {
        self.expect(group, Kind::Partial, "reduce_scatter")?;
        if group.size() == 1 {
            return Ok(self.now(self.tensor.clone(), group, Kind::Invariant));
        }
        let dim = dim.to_index(self.tensor.shape(), "reduce_scatter")?;
        let part = Output::Fresh(group.reduce_scatter(&self.tensor, dim, ReduceOp::Sum)?);
        let along = group.clone();
        let tensor = function("reduce_scatter", &[&self.tensor], part, move |gradient, _| {
            Ok(vec![Some(along.all_gather(gradient, dim)?)])
        })?;
        Ok(self.now(tensor, group, Kind::Varying))
    }

    /// All ranks' parts along a dimension, for each rank to use for something of its own. Back, the gradients are added and
    /// each rank gets that of its part.
    ///
    /// # Errors
    /// The value isn't varying, or the collective fails.
    #[track_caller]
    pub fn all_gather(&self, group: &Group, dim: impl Dim) -> Result<Value> {
        self.expect(group, Kind::Varying, "all_gather")?;
        if group.size() == 1 {
            return Ok(self.now(self.tensor.clone(), group, Kind::Invariant));
        }
        let dim = dim.to_index(self.tensor.shape(), "all_gather")?;
        let whole = Output::Fresh(group.all_gather(&self.tensor, dim)?);
        let along = group.clone();
        let tensor = function("all_gather", &[&self.tensor], whole, move |gradient, _| {
            Ok(vec![Some(along.reduce_scatter(gradient, dim, ReduceOp::Sum)?)])
        })?;
        Ok(self.now(tensor, group, Kind::Replicated))
    }

    /// All ranks' parts along a dimension, with which all ranks do the same. Back, each rank takes its part.
    ///
    /// # Errors
    /// The value isn't varying, or the collective fails.
    #[track_caller]
    pub fn all_gather_invariant(&self, group: &Group, dim: impl Dim) -> Result<Value> {
        self.expect(group, Kind::Varying, "all_gather_invariant")?;
        if group.size() == 1 {
            return Ok(self.now(self.tensor.clone(), group, Kind::Invariant));
        }
        let dim = dim.to_index(self.tensor.shape(), "all_gather")?;
        let whole = Output::Fresh(group.all_gather(&self.tensor, dim)?);
        let along = group.clone();
        let tensor = function("all_gather_invariant", &[&self.tensor], whole, move |gradient, _| {
            Ok(vec![Some(along.part(gradient, dim)?)])
        })?;
        Ok(self.now(tensor, group, Kind::Invariant))
    }

    /// This rank's part along a dimension of an invariant value. Back, the parts' gradients are gathered.
    ///
    /// # Errors
    /// The value isn't invariant, or the dimension can't be cut.
    #[track_caller]
    pub fn scatter(&self, group: &Group, dim: impl Dim) -> Result<Value> {
        self.expect(group, Kind::Invariant, "scatter")?;
        if group.size() == 1 {
            return Ok(self.clone());
        }
        let dim = dim.to_index(self.tensor.shape(), "scatter")?;
        let part = Output::Shared(group.part(&self.tensor, dim)?);
        let along = group.clone();
        let tensor = function("scatter", &[&self.tensor], part, move |gradient, _| {
            Ok(vec![Some(along.all_gather(gradient, dim)?)])
        })?;
        Ok(self.now(tensor, group, Kind::Varying))
    }

    /// Blocks to and from all ranks: cut along one dimension, joined along another. Back, the other way round.
    ///
    /// # Errors
    /// The value isn't varying, the dimension can't be cut, or the collective fails.
    #[track_caller]
    pub fn all_to_all(&self, group: &Group, cut: impl Dim, join: impl Dim) -> Result<Value> {
        self.expect(group, Kind::Varying, "all_to_all")?;
        if group.size() == 1 {
            return Ok(self.clone());
        }
        let cut = cut.to_index(self.tensor.shape(), "all_to_all")?;
        let join = join.to_index(self.tensor.shape(), "all_to_all")?;
        let turned = Output::Fresh(group.all_to_all(&self.tensor, cut, join)?);
        let along = group.clone();
        let tensor = function("all_to_all", &[&self.tensor], turned, move |gradient, _| {
            Ok(vec![Some(along.all_to_all(gradient, join, cut)?)])
        })?;
        Ok(self.now(tensor, group, Kind::Varying))
    }
}
