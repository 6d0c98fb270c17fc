//! What a value is along an axis, and what its gradient then is.
//!
//! | kind | the ranks hold | the gradients are |
//! |---|---|---|
//! | replicated | the same | parts of a sum |
//! | invariant | the same | the same |
//! | varying | each its own | each its own |
//! | partial | parts of a sum | the same |
//!
//! *Replicated* and *invariant* hold alike and differ in what a gradient must go through: a replicated value is used by each
//! rank for something of its own, so that its gradients have yet to be added; of an invariant one all ranks do the same.

use std::collections::BTreeMap;
use std::panic::Location;

use crate::error::{Error, Result};
use crate::mesh::Axis;

/// What a value is along an axis.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum Kind {
    /// The same on all ranks; each uses it for something of its own.
    Replicated,
    /// The same on all ranks, which all do the same with it.
    Invariant,
    /// Different on each rank.
    Varying,
    /// The ranks' values have yet to be added.
    Partial,
}

impl Kind {
    /// Its name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Replicated => "replicated",
            Kind::Invariant => "invariant",
            Kind::Varying => "varying",
            Kind::Partial => "partial",
        }
    }

    /// What the gradient of such a value is.
    #[must_use]
    pub fn of_gradient(self) -> Kind {
        match self {
            Kind::Replicated => Kind::Partial,
            Kind::Partial => Kind::Replicated,
            same => same,
        }
    }
}

/// What a value is along each axis on which that matters. Along an axis that isn't named it is invariant, as where there is
/// one rank.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Spread {
    kinds: BTreeMap<Axis, Kind>,
}

impl Spread {
    /// Invariant everywhere.
    #[must_use]
    pub fn invariant() -> Spread {
        Spread::default()
    }

    /// This, with another kind along an axis.
    #[must_use]
    pub fn with(mut self, axis: Axis, kind: Kind) -> Spread {
        match kind {
            Kind::Invariant => self.kinds.remove(&axis),
            kind => self.kinds.insert(axis, kind),
        };
        self
    }

    /// What it is along an axis.
    #[must_use]
    pub fn along(&self, axis: Axis) -> Kind {
        self.kinds.get(&axis).copied().unwrap_or(Kind::Invariant)
    }

    /// The axes along which it is of a kind other than invariant.
    pub fn iter(&self) -> impl Iterator<Item = (Axis, Kind)> + '_ {
        self.kinds.iter().map(|(axis, kind)| (*axis, *kind))
    }

    /// The axes along which it is of this kind.
    pub fn axes_of(&self, kind: Kind) -> impl Iterator<Item = Axis> + '_ {
        self.iter().filter(move |(_, is)| *is == kind).map(|(axis, _)| axis)
    }

    /// What comes out of values that are put together: by any function, or by one that is linear in all of them together
    /// (a sum), or in each of them (a product).
    ///
    /// # Errors
    /// They don't go together along some axis; `what` and `place` say where.
    pub(crate) fn of_all(
        operands: &[&Spread],
        how: Together,
        what: &str,
        place: &'static Location<'static>,
    ) -> Result<Spread> {
        let mut result = Spread::default();
        let axes: std::collections::BTreeSet<Axis> =
            operands.iter().flat_map(|spread| spread.kinds.keys().copied()).collect();
        for axis in axes {
            let kinds: Vec<Kind> = operands.iter().map(|spread| spread.along(axis)).collect();
            let kind = together(&kinds, how)
                .map_err(|why| Error::Spread { what: format!("{what} along {axis}: {why}"), place })?;
            result = result.with(axis, kind);
        }
        Ok(result)
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.kinds.is_empty() {
            return f.write_str("invariant");
        }
        let words: Vec<String> = self.iter().map(|(axis, kind)| format!("{} along {axis}", kind.name())).collect();
        f.write_str(&words.join(", "))
    }
}

/// How a function treats its operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Together {
    /// f(a + b, c + d) is not known from parts.
    Any,
    /// f(a + b, c + d) = f(a, c) + f(b, d).
    Sum,
    /// f(a + b, c) = f(a, c) + f(b, c), for each operand.
    Product,
}

/// What comes out along one axis, or why nothing sensible does.
fn together(kinds: &[Kind], how: Together) -> Result<Kind, String> {
    let has = |kind: Kind| kinds.contains(&kind);
    if has(Kind::Invariant) && !kinds.iter().all(|kind| *kind == Kind::Invariant) {
        let other = kinds.iter().find(|kind| **kind != Kind::Invariant).expect("not all are");
        return Err(format!(
            "an invariant value meets a {} one: its gradient would miss the other ranks' part (make it replicated first)",
            other.name()
        ));
    }
    match (has(Kind::Partial), how) {
        (false, _) if has(Kind::Varying) => Ok(Kind::Varying),
        (false, _) => Ok(kinds[0]),
        (true, Together::Any) => Err("a partial value isn't the sum yet (reduce it first)".to_owned()),
        (true, Together::Sum) if kinds.iter().all(|kind| *kind == Kind::Partial) => Ok(Kind::Partial),
        (true, Together::Sum) => {
            Err("what is added to a partial value would be added once for each rank (reduce it first)".to_owned())
        }
        (true, Together::Product) => {
            match kinds.iter().all(|kind| *kind == Kind::Replicated || *kind == Kind::Partial)
                && kinds.iter().filter(|kind| **kind == Kind::Partial).count() == 1
            {
                true => Ok(Kind::Partial),
                false => Err("a product with a partial value isn't a part of the product of the sum".to_owned()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Kind::{Invariant, Partial, Replicated, Varying};

    #[test]
    fn what_goes_together() {
        use Together::{Any, Product, Sum};
        for (kinds, how, want) in [
            (&[Invariant, Invariant][..], Any, Some(Invariant)),
            (&[Replicated, Replicated], Any, Some(Replicated)),
            (&[Replicated, Varying], Any, Some(Varying)),
            (&[Varying, Varying], Product, Some(Varying)),
            (&[Invariant, Varying], Any, None),
            (&[Invariant, Replicated], Sum, None),
            (&[Partial], Any, None),
            (&[Partial, Partial], Sum, Some(Partial)),
            (&[Partial, Replicated], Sum, None),
            (&[Partial, Replicated], Product, Some(Partial)),
            (&[Partial, Varying], Product, None),
            (&[Partial, Partial], Product, None),
        ] {
            assert_eq!(together(kinds, how).ok(), want, "{kinds:?} {how:?}");
        }
    }

    #[test]
    fn gradients_are_dual() {
        for kind in [Replicated, Invariant, Varying, Partial] {
            assert_eq!(kind.of_gradient().of_gradient(), kind);
        }
        assert_eq!(Replicated.of_gradient(), Partial);
    }

    #[test]
    fn an_error_names_axis_and_place() {
        let (one, two) = (Spread::invariant(), Spread::invariant().with(Axis::Tp, Varying));
        let error =
            Spread::of_all(&[&one, &two], Together::Any, "layer_norm", Location::caller()).unwrap_err().to_string();
        assert!(error.contains("layer_norm along tp") && error.contains("kind.rs"), "{error}");
    }
}
