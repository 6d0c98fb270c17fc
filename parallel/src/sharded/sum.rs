//! A vector in which gradients are added, in whichever type they are kept.

use std::ops::Range;

use candle_core::{DType, Tensor};
use half::{bf16, f16};

use crate::error::{Error, Result};
use crate::group::Elements;
use crate::state::Numbers;

/// Gradients that are being added.
pub(super) enum Sum {
    /// In a precision of training.
    Wide(Numbers),
    Bf16(Vec<bf16>),
    F16(Vec<f16>),
}

impl Sum {
    pub(super) fn zeros(dtype: DType, len: usize) -> Sum {
        match dtype {
            DType::BF16 => Sum::Bf16(vec![bf16::ZERO; len]),
            DType::F16 => Sum::F16(vec![f16::ZERO; len]),
            wide => Sum::Wide(Numbers::zeros(wide, len)),
        }
    }

    /// Numbers, rounded to a type.
    pub(super) fn of(numbers: Numbers, dtype: DType) -> Result<Sum> {
        if numbers.dtype() == dtype {
            return Ok(Sum::Wide(numbers));
        }
        let len = numbers.len();
        let mut sum = Sum::zeros(dtype, len);
        sum.add(0, &numbers.tensor(0..len, len, numbers.dtype())?)?;
        Ok(sum)
    }

    pub(super) fn dtype(&self) -> DType {
        match self {
            Sum::Wide(numbers) => numbers.dtype(),
            Sum::Bf16(_) => DType::BF16,
            Sum::F16(_) => DType::F16,
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Sum::Wide(numbers) => numbers.len(),
            Sum::Bf16(numbers) => numbers.len(),
            Sum::F16(numbers) => numbers.len(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.len() * self.dtype().size_in_bytes()
    }

    /// Adds a tensor's elements from a place on; each sum is rounded once.
    pub(super) fn add(&mut self, first: usize, tensor: &Tensor) -> Result<()> {
        if let Sum::Wide(numbers) = self {
            return numbers.add(first, tensor);
        }
        let Elements::F32(source) = Elements::of(&tensor.detach().to_dtype(DType::F32)?)? else {
            unreachable!("it was made f32");
        };
        let range = first..first + source.len();
        match self {
            Sum::Wide(_) => unreachable!("handled above"),
            Sum::Bf16(numbers) => {
                let numbers = numbers[range].iter_mut().zip(source);
                numbers.for_each(|(to, from)| *to = bf16::from_f32(to.to_f32() + from));
            }
            Sum::F16(numbers) => {
                let numbers = numbers[range].iter_mut().zip(source);
                numbers.for_each(|(to, from)| *to = f16::from_f32(to.to_f32() + from));
            }
        }
        Ok(())
    }

    pub(super) fn add_all(&mut self, other: Sum) -> Result<()> {
        let len = other.len();
        self.add(0, &other.into_elements().into_tensor(len)?)
    }

    pub(super) fn into_elements(self) -> Elements {
        match self {
            Sum::Wide(numbers) => numbers.into_elements(),
            Sum::Bf16(numbers) => Elements::Bf16(numbers),
            Sum::F16(numbers) => Elements::F16(numbers),
        }
    }

    pub(super) fn from_elements(elements: Elements) -> Result<Sum> {
        Ok(match elements {
            Elements::Bf16(numbers) => Sum::Bf16(numbers),
            Elements::F16(numbers) => Sum::F16(numbers),
            wide => Sum::Wide(Numbers::from_elements(wide)?),
        })
    }

    /// The numbers in a precision of training.
    pub(super) fn into_numbers(self) -> Result<Numbers> {
        match self {
            Sum::Wide(numbers) => Ok(numbers),
            narrow => {
                let len = narrow.len();
                let mut numbers = Numbers::zeros(DType::F32, len);
                numbers.add(0, &narrow.into_elements().into_tensor(len)?)?;
                Ok(numbers)
            }
        }
    }

    /// A copy of some of the numbers.
    pub(super) fn copied(&self, range: Range<usize>) -> Elements {
        match self {
            Sum::Wide(Numbers::F32(numbers)) => Elements::F32(numbers[range].to_vec()),
            Sum::Wide(Numbers::F64(numbers)) => Elements::F64(numbers[range].to_vec()),
            Sum::Bf16(numbers) => Elements::Bf16(numbers[range].to_vec()),
            Sum::F16(numbers) => Elements::F16(numbers[range].to_vec()),
        }
    }

    /// Writes numbers of the same type from a place on.
    pub(super) fn write(&mut self, first: usize, elements: &Elements) -> Result<()> {
        let range = first..first + elements.len();
        match (self, elements) {
            (Sum::Wide(Numbers::F32(to)), Elements::F32(from)) => to[range].copy_from_slice(from),
            (Sum::Wide(Numbers::F64(to)), Elements::F64(from)) => to[range].copy_from_slice(from),
            (Sum::Bf16(to), Elements::Bf16(from)) => to[range].copy_from_slice(from),
            (Sum::F16(to), Elements::F16(from)) => to[range].copy_from_slice(from),
            (to, from) => {
                let (is, should) = (from.dtype(), to.dtype());
                return Err(Error::invalid(format!("gradients of {is:?} came where {should:?} were sent")));
            }
        }
        Ok(())
    }
}
