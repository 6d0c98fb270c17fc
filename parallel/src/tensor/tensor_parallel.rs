//! The ranks among which matrices are cut, and how activations lie between layers.

use std::panic::Location;

use candle_core::Tensor;

use crate::error::{Error, Result};
use crate::group::Group;
use crate::mesh::Axis;
use crate::parameter::Parameter;
use crate::value::{Kind, Spread, Value};

/// The dimension along which activations between layers, of [batch, sequence, width], are cut.
pub(crate) const SEQUENCE: usize = 1;

/// The ranks among which matrices are cut. With one rank nothing is.
#[derive(Clone)]
pub struct TensorParallel {
    /// The ranks, along `tp`.
    pub group: Group,
    /// Whether activations between layers are cut along the sequence, rather than the same on all ranks.
    pub sequence: bool,
}

impl TensorParallel {
    /// One rank, which has everything.
    ///
    /// # Errors
    /// A communicator of one rank can't be made.
    pub fn alone() -> Result<TensorParallel> {
        Ok(TensorParallel { group: Group::alone(Axis::Tp)?, sequence: false })
    }

    /// What activations between layers are: varying where they are cut along the sequence, else invariant.
    #[must_use]
    pub fn between_layers(&self) -> Spread {
        Spread::invariant().with(self.axis(), if self.cuts_sequence() { Kind::Varying } else { Kind::Invariant })
    }

    /// What parameters are that are applied to activations between layers, all of them on each rank: where the sequence is
    /// cut, each rank has the gradients of its positions only, and they are to be added.
    #[must_use]
    pub fn shared(&self) -> Spread {
        Spread::invariant().with(self.axis(), if self.cuts_sequence() { Kind::Replicated } else { Kind::Invariant })
    }

    /// How many positions of a sequence lie here between layers.
    ///
    /// # Errors
    /// The sequence is to be cut, and can't be into equal parts.
    pub fn positions_here(&self, len: usize) -> Result<std::ops::Range<usize>> {
        if !self.cuts_sequence() {
            return Ok(0..len);
        }
        let ranks = self.size();
        if !len.is_multiple_of(ranks) {
            return Err(Error::invalid(format!("a sequence of {len} can't be cut into {ranks} equal parts along tp")));
        }
        let part = len / ranks;
        Ok(self.rank() * part..(self.rank() + 1) * part)
    }

    pub(crate) fn axis(&self) -> Axis {
        self.group.axis()
    }

    pub(crate) fn rank(&self) -> usize {
        self.group.rank()
    }

    pub(crate) fn size(&self) -> usize {
        self.group.size()
    }

    pub(crate) fn cuts_sequence(&self) -> bool {
        self.sequence && self.size() > 1
    }

    /// What a parameter is of which each rank has a part.
    pub(crate) fn cut(&self) -> Spread {
        self.spread(Kind::Varying)
    }

    /// This kind along the group, if there is more than one rank.
    pub(crate) fn spread(&self, kind: Kind) -> Spread {
        Spread::invariant().with(self.axis(), if self.size() > 1 { kind } else { Kind::Invariant })
    }

    /// A tensor that is of this kind along the group, and like another value otherwise.
    pub(crate) fn value(&self, tensor: Tensor, like: &Value, kind: Kind) -> Value {
        let kind = if self.size() > 1 { kind } else { Kind::Invariant };
        Value::new(tensor, like.spread().clone().with(self.axis(), kind))
    }

    pub(crate) fn wrong(&self, what: String, place: &'static Location<'static>) -> Error {
        Error::Spread { what, place }
    }

    /// Refuses a value that isn't of this kind.
    pub(crate) fn expect(
        &self,
        value: &Value,
        kind: Kind,
        what: &str,
        place: &'static Location<'static>,
    ) -> Result<()> {
        let is = value.along(self.axis());
        if self.size() == 1 || is == kind {
            return Ok(());
        }
        let (kind, is, axis) = (kind.name(), is.name(), self.axis());
        Err(self.wrong(format!("{what} takes a value that is {kind} along {axis}, and this one is {is}"), place))
    }
}

/// Refuses to apply a parameter to a value of another kind: its gradients, or the value's, would not be added where they must.
pub(crate) fn applies(
    parameter: &Parameter,
    value: &Value,
    axis: Axis,
    place: &'static Location<'static>,
) -> Result<()> {
    let (has, needs) = (parameter.spread().along(axis), value.along(axis));
    let fits = match needs {
        Kind::Invariant => has == Kind::Invariant,
        Kind::Replicated | Kind::Varying => has != Kind::Invariant,
        Kind::Partial => false,
    };
    if fits {
        return Ok(());
    }
    let (name, has, needs) = (parameter.name(), has.name(), needs.name());
    let what = format!("{name} is {has} along {axis} and is applied to a value that is {needs}");
    Err(Error::Spread { what, place })
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_comm::Communicator;

    #[test]
    fn positions_lie_where_they_should() {
        for comm in Communicator::in_process(2).unwrap() {
            let tp = TensorParallel { group: Group::of(comm, Axis::Tp), sequence: true };
            let first = 3 * tp.rank();
            assert_eq!(tp.positions_here(6).unwrap(), first..first + 3);
            let error = tp.positions_here(5).unwrap_err().to_string();
            assert!(error.contains("a sequence of 5 can't be cut into 2"), "{error}");
            let whole = TensorParallel { sequence: false, ..tp };
            assert_eq!(whole.positions_here(5).unwrap(), 0..5);
        }
    }
}
