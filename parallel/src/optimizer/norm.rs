//! The norm of all gradients together: each logical element once, wherever and however often it lies.

use paceline_comm::ReduceOp;

use super::kernel::Real;
use super::ownership::Ownership;
use crate::error::{Doing, Result};
use crate::mesh::Mesh;
use crate::state::{Numbers, Segment, State};
use crate::stretch::Stretch;

/// A norm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Norm {
    /// The root of the sum of squares.
    L2,
    /// The largest magnitude.
    Infinity,
}

/// How large the gradients' norm may be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Clip {
    /// Which norm.
    pub norm: Norm,
    /// Its largest value.
    pub max: f64,
}

impl Clip {
    /// What gradients of a norm are to be multiplied by.
    #[must_use]
    pub fn factor(&self, norm: f64) -> f64 {
        if norm > self.max { self.max / norm } else { 1.0 }
    }
}

/// The norm of a state's gradients, sums as they are, on all ranks. Padding doesn't count. It is NaN if any gradient is.
/// All ranks of the mesh call it together.
///
/// Squares are added in double precision, so that the result depends on the layout by its last few bits only.
///
/// # Errors
/// The collective fails, or the state's shards have changed since `ownership` was agreed on.
pub fn gradient_norm(mesh: &Mesh, ownership: &Ownership, state: &dyn State, norm: Norm) -> Result<f64> {
    let (mut result, mut place) = (0.0, 0);
    state.visit(&mut |shard| {
        let owned = ownership.of_shard(place, shard.segments.len())?;
        place += 1;
        for (segment, _) in shard.segments.iter().zip(owned).filter(|(_, owned)| **owned) {
            result = norm.together(result, norm.of_segment(segment, &shard.gradients));
        }
        Ok(())
    })?;
    let mut result = [result];
    let op = match norm {
        Norm::L2 => ReduceOp::Sum,
        Norm::Infinity => ReduceOp::Max,
    };
    mesh.world().all_reduce_in_place(&mut result, op).doing(|| "adding up the gradients' norm".to_owned())?;
    Ok(match norm {
        Norm::L2 => result[0].sqrt(),
        Norm::Infinity => result[0],
    })
}

impl Norm {
    fn of_segment(self, segment: &Segment, gradients: &Numbers) -> f64 {
        if !segment.parameter.part().is_padded() {
            return self.of_range(gradients, segment.range.clone());
        }
        let runs = Stretch::of(segment).real().into_iter().map(|run| {
            let begin = segment.range.start + (run.mine - segment.first);
            self.of_range(gradients, begin..begin + run.len)
        });
        runs.fold(0.0, |one, other| self.together(one, other))
    }

    fn of_range(self, gradients: &Numbers, range: std::ops::Range<usize>) -> f64 {
        match gradients {
            Numbers::F32(numbers) => self.of_slice(&numbers[range]),
            Numbers::F64(numbers) => self.of_slice(&numbers[range]),
        }
    }

    /// Several sums at once, so that additions don't wait for each other.
    fn of_slice<T: Real>(self, numbers: &[T]) -> f64 {
        let mut lanes = [0.0f64; 8];
        for chunk in numbers.chunks(lanes.len()) {
            for (lane, number) in lanes.iter_mut().zip(chunk) {
                *lane = match self {
                    Norm::L2 => *lane + number.wide() * number.wide(),
                    Norm::Infinity => larger(*lane, number.wide().abs()),
                };
            }
        }
        lanes.into_iter().fold(0.0, |one, other| self.together(one, other))
    }

    fn together(self, one: f64, other: f64) -> f64 {
        match self {
            Norm::L2 => one + other,
            Norm::Infinity => larger(one, other),
        }
    }
}

/// The larger number; NaN if there is one.
fn larger(one: f64, other: f64) -> f64 {
    if one.is_nan() || one > other { one } else { other }
}
