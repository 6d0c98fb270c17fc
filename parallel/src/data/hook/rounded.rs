//! The sum of gradients that were rounded to 16 bits: half the bytes, about three (bf16) or four (f16) digits.

use candle_core::DType;
use paceline_comm::{Collective, ReduceOp};

use super::{CommHook, Reduction};
use crate::error::{Doing, Error, Result};
use crate::group::{Elements, Group, Started};
use crate::state::{Numbers, Segment};

/// Rounds buckets to a type of 16 bits before they are added.
///
/// With unit roundoff u (2^-9 for bf16, 2^-12 for f16) and n ranks, the error of a sum is at most (n + 1) u times the sum of
/// the magnitudes, to first order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rounded(DType);

impl Rounded {
    /// 8 bits of precision and the range of f32.
    #[must_use]
    pub fn bf16() -> Rounded {
        Rounded(DType::BF16)
    }

    /// 11 bits of precision; sums beyond 65,504 times the number of ranks overflow, and what is below 2^-24 times that
    /// vanishes: gradients must be scaled to fit.
    #[must_use]
    pub fn f16() -> Rounded {
        Rounded(DType::F16)
    }

    /// What gradients are divided by before they are rounded, so that the sum is no larger than they were: a power of two,
    /// for which that is exact.
    fn divisor(self, ranks: usize) -> f64 {
        if self.0 == DType::F16 { ranks.next_power_of_two() as f64 } else { 1.0 }
    }
}

impl CommHook for Rounded {
    fn start(&self, _: &[Segment], mut gradients: Numbers, group: &Group) -> Result<Box<dyn Reduction>> {
        let divisor = self.divisor(group.size());
        if divisor != 1.0 {
            gradients.scale(1.0 / divisor);
        }
        let (len, dtype) = (gradients.len(), gradients.dtype());
        let elements = Elements::of(&gradients.tensor(0..len, len, self.0)?)?;
        group.count(Collective::AllReduce, elements.bytes());
        let started = elements.start_all_reduce(group.comm(), ReduceOp::Sum);
        let started = started.doing(|| "starting to add a bucket of rounded gradients".to_owned())?;
        Ok(Box::new(Sum { started, dtype, divisor }))
    }
}

struct Sum {
    started: Started,
    dtype: DType,
    divisor: f64,
}

impl Reduction for Sum {
    fn is_ready(&self) -> bool {
        self.started.is_ready()
    }

    fn finish(self: Box<Self>) -> Result<Numbers> {
        let elements = self.started.wait(|| "adding a bucket of rounded gradients".to_owned())?;
        let len = elements.len();
        let mut sum = Numbers::zeros(self.dtype, len);
        if len > 0 {
            sum.write(0, &elements.into_tensor(len).map_err(Error::from)?)?;
        }
        if self.divisor != 1.0 {
            sum.scale(self.divisor);
        }
        Ok(sum)
    }
}
