//! The numbers of a stretch in their type, for loops that are written once for both.

use std::ops::{Add, Div, Mul, Sub};

use crate::state::Numbers;

/// A type that is trained in.
pub(crate) trait Real:
    Copy
    + Default
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + std::iter::Sum
{
    fn of(number: f64) -> Self;
    fn wide(self) -> f64;
    fn root(self) -> Self;
}

impl Real for f32 {
    fn of(number: f64) -> f32 {
        number as f32
    }

    fn wide(self) -> f64 {
        f64::from(self)
    }

    fn root(self) -> f32 {
        self.sqrt()
    }
}

impl Real for f64 {
    fn of(number: f64) -> f64 {
        number
    }

    fn wide(self) -> f64 {
        self
    }

    fn root(self) -> f64 {
        self.sqrt()
    }
}

/// What a rule updates at once: elements of one parameter.
#[derive(Debug)]
pub struct Stretched<'s, T> {
    /// The values, to be updated.
    pub values: &'s mut [T],
    /// The gradients: sums.
    pub gradients: &'s [T],
    /// What is remembered of each element, in the rule's order.
    pub moments: Vec<&'s mut [T]>,
}

/// A stretch in one of the types.
#[derive(Debug)]
pub enum Slices<'s> {
    /// In single precision.
    F32(Stretched<'s, f32>),
    /// In double precision.
    F64(Stretched<'s, f64>),
}

/// How a stretch is updated.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Update {
    /// The learning rate.
    pub learning_rate: f64,
    /// How strongly values are drawn to zero.
    pub weight_decay: f64,
    /// What each gradient is to be multiplied by.
    pub gradient_factor: f64,
    /// Which update of this parameter it is, the first being 1.
    pub step: u64,
}

/// The slices of a range of some vectors; `None` if they are not all of one type.
pub(super) fn slices<'s>(
    range: std::ops::Range<usize>,
    values: &'s mut Numbers,
    gradients: &'s Numbers,
    moments: Vec<&'s mut Numbers>,
) -> Option<Slices<'s>> {
    match (values, gradients) {
        (Numbers::F32(values), Numbers::F32(gradients)) => {
            let moment = |numbers: &'s mut Numbers| match numbers {
                Numbers::F32(numbers) => Some(&mut numbers[range.clone()]),
                Numbers::F64(_) => None,
            };
            let moments = moments.into_iter().map(moment).collect::<Option<Vec<_>>>()?;
            Some(Slices::F32(Stretched { values: &mut values[range.clone()], gradients: &gradients[range], moments }))
        }
        (Numbers::F64(values), Numbers::F64(gradients)) => {
            let moment = |numbers: &'s mut Numbers| match numbers {
                Numbers::F64(numbers) => Some(&mut numbers[range.clone()]),
                Numbers::F32(_) => None,
            };
            let moments = moments.into_iter().map(moment).collect::<Option<Vec<_>>>()?;
            Some(Slices::F64(Stretched { values: &mut values[range.clone()], gradients: &gradients[range], moments }))
        }
        _ => None,
    }
}
