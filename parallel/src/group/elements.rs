//! A vector of numbers in one of the types that are trained with: what flat buffers are made of and collectives take.

use std::ops::AddAssign;

use candle_core::{CpuStorage, DType, Device, Shape, Storage, Tensor};
use half::{bf16, f16};
use paceline_comm::{Communicator, ReduceOp, Work};

use crate::error::{Doing, Error, Result};

/// Numbers in host memory.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Elements {
    F32(Vec<f32>),
    F64(Vec<f64>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
    I64(Vec<i64>),
    U32(Vec<u32>),
    U8(Vec<u8>),
}

/// A collective on elements that was started.
pub(crate) enum Started {
    F32(Work<f32>),
    F64(Work<f64>),
    F16(Work<f16>),
    Bf16(Work<bf16>),
    I64(Work<i64>),
    U32(Work<u32>),
    U8(Work<u8>),
}

/// Runs the same expression for whichever type it is.
macro_rules! each {
    ($value:expr, $vector:ident => $then:expr) => {
        match $value {
            Elements::F32($vector) => $then,
            Elements::F64($vector) => $then,
            Elements::F16($vector) => $then,
            Elements::Bf16($vector) => $then,
            Elements::I64($vector) => $then,
            Elements::U32($vector) => $then,
            Elements::U8($vector) => $then,
        }
    };
}

/// Runs the same expression for a pair of one type, and gives an [`Elements`] or another wrapper of that type.
macro_rules! each_wrapped {
    ($wrapper:ident, $value:expr, $vector:ident => $then:expr) => {
        match $value {
            Elements::F32($vector) => $wrapper::F32($then),
            Elements::F64($vector) => $wrapper::F64($then),
            Elements::F16($vector) => $wrapper::F16($then),
            Elements::Bf16($vector) => $wrapper::Bf16($then),
            Elements::I64($vector) => $wrapper::I64($then),
            Elements::U32($vector) => $wrapper::U32($then),
            Elements::U8($vector) => $wrapper::U8($then),
        }
    };
}

impl Elements {
    pub(crate) fn zeros(dtype: DType, len: usize) -> Result<Elements> {
        Ok(match dtype {
            DType::F32 => Elements::F32(vec![0.0; len]),
            DType::F64 => Elements::F64(vec![0.0; len]),
            DType::F16 => Elements::F16(vec![f16::ZERO; len]),
            DType::BF16 => Elements::Bf16(vec![bf16::ZERO; len]),
            DType::I64 => Elements::I64(vec![0; len]),
            DType::U32 => Elements::U32(vec![0; len]),
            DType::U8 => Elements::U8(vec![0; len]),
            other => return Err(Error::invalid(format!("tensors of {other:?} can't be sent"))),
        })
    }

    /// The elements of a tensor in row-major order.
    pub(crate) fn of(tensor: &Tensor) -> Result<Elements> {
        let tensor = tensor.contiguous()?;
        let (storage, layout) = tensor.storage_and_layout();
        let Storage::Cpu(storage) = &*storage else {
            return Err(Error::invalid(format!("a tensor on {:?}: only host memory can be sent", tensor.device())));
        };
        let (first, end) = layout.contiguous_offsets().expect("it was made contiguous");
        Ok(match storage {
            CpuStorage::F32(all) => Elements::F32(all[first..end].to_vec()),
            CpuStorage::F64(all) => Elements::F64(all[first..end].to_vec()),
            CpuStorage::F16(all) => Elements::F16(all[first..end].to_vec()),
            CpuStorage::BF16(all) => Elements::Bf16(all[first..end].to_vec()),
            CpuStorage::I64(all) => Elements::I64(all[first..end].to_vec()),
            CpuStorage::U32(all) => Elements::U32(all[first..end].to_vec()),
            CpuStorage::U8(all) => Elements::U8(all[first..end].to_vec()),
            other => return Err(Error::invalid(format!("tensors of {:?} can't be sent", storage_type(other)))),
        })
    }

    /// A tensor that owns these elements.
    pub(crate) fn into_tensor(self, shape: impl Into<Shape>) -> Result<Tensor> {
        let shape = shape.into();
        Ok(each!(self, vector => Tensor::from_vec(vector, shape, &Device::Cpu)?))
    }

    /// A tensor with a copy of some of these elements.
    ///
    /// # Panics
    /// If the range is not within them.
    pub(crate) fn tensor_of(&self, range: std::ops::Range<usize>, shape: impl Into<Shape>) -> Result<Tensor> {
        let shape = shape.into();
        Ok(each!(self, vector => Tensor::from_slice(&vector[range], shape, &Device::Cpu)?))
    }

    pub(crate) fn dtype(&self) -> DType {
        match self {
            Elements::F32(_) => DType::F32,
            Elements::F64(_) => DType::F64,
            Elements::F16(_) => DType::F16,
            Elements::Bf16(_) => DType::BF16,
            Elements::I64(_) => DType::I64,
            Elements::U32(_) => DType::U32,
            Elements::U8(_) => DType::U8,
        }
    }

    pub(crate) fn len(&self) -> usize {
        each!(self, vector => vector.len())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.len() * self.dtype().size_in_bytes()
    }

    pub(crate) fn all_reduce(&mut self, comm: &Communicator, op: ReduceOp) -> paceline_comm::Result<()> {
        each!(self, vector => comm.all_reduce_in_place(vector, op))
    }

    pub(crate) fn broadcast(&mut self, comm: &Communicator, root: usize) -> paceline_comm::Result<()> {
        each!(self, vector => comm.broadcast(vector, root))
    }

    /// Every rank's elements, in rank order; all have as many.
    pub(crate) fn all_gather(&self, comm: &Communicator) -> paceline_comm::Result<Elements> {
        Ok(each_wrapped!(Elements, self, vector => {
            let mut all = vec![Default::default(); vector.len() * comm.size()];
            comm.all_gather(vector, &mut all)?;
            all
        }))
    }

    /// This rank's block of the sum; the length must be a multiple of the number of ranks.
    pub(crate) fn reduce_scatter(&self, comm: &Communicator, op: ReduceOp) -> paceline_comm::Result<Elements> {
        Ok(each_wrapped!(Elements, self, vector => {
            let mut block = vec![Default::default(); vector.len() / comm.size()];
            comm.reduce_scatter(vector, &mut block, op)?;
            block
        }))
    }

    pub(crate) fn all_to_all(&self, comm: &Communicator) -> paceline_comm::Result<Elements> {
        Ok(each_wrapped!(Elements, self, vector => {
            let mut received = vec![Default::default(); vector.len()];
            comm.all_to_all(vector, &mut received)?;
            received
        }))
    }

    pub(crate) fn start_all_reduce(self, comm: &Communicator, op: ReduceOp) -> paceline_comm::Result<Started> {
        Ok(each_wrapped!(Started, self, vector => comm.start_all_reduce(vector, op)?))
    }

    pub(crate) fn start_reduce_scatter(self, comm: &Communicator, op: ReduceOp) -> paceline_comm::Result<Started> {
        Ok(each_wrapped!(Started, self, vector => {
            let block = vec![Default::default(); vector.len() / comm.size()];
            comm.start_reduce_scatter(vector, block, op)?
        }))
    }

    /// Every rank's block for this one, in rank order; the length must be a multiple of the number of ranks.
    pub(crate) fn start_all_to_all(self, comm: &Communicator) -> paceline_comm::Result<Started> {
        Ok(each_wrapped!(Started, self, vector => {
            let received = vec![Default::default(); vector.len()];
            comm.start_all_to_all(vector, received)?
        }))
    }

    pub(crate) fn start_all_gather(self, comm: &Communicator) -> paceline_comm::Result<Started> {
        Ok(each_wrapped!(Started, self, vector => {
            let all = vec![Default::default(); vector.len() * comm.size()];
            comm.start_all_gather(vector, all)?
        }))
    }

    /// The sum of so many equal parts, as a binary tree over them in their order.
    pub(crate) fn added_in_order(self, parts: usize) -> Elements {
        each_wrapped!(Elements, self, vector => {
            let len = vector.len() / parts;
            let mut sum = add_in_order(vector, parts);
            sum.truncate(len);
            sum
        })
    }

    pub(crate) fn start_send(self, comm: &Communicator, to: usize) -> paceline_comm::Result<Started> {
        Ok(each_wrapped!(Started, self, vector => comm.start_send(vector, to)?))
    }

    /// Receives as many elements as these are, which are overwritten.
    pub(crate) fn start_recv(self, comm: &Communicator, from: usize) -> paceline_comm::Result<Started> {
        Ok(each_wrapped!(Started, self, vector => comm.start_recv(vector, from)?))
    }
}

impl Started {
    /// Waits for the result.
    pub(crate) fn wait(self, doing: impl FnOnce() -> String) -> Result<Elements> {
        Ok(match self {
            Started::F32(work) => Elements::F32(work.wait().doing(doing)?),
            Started::F64(work) => Elements::F64(work.wait().doing(doing)?),
            Started::F16(work) => Elements::F16(work.wait().doing(doing)?),
            Started::Bf16(work) => Elements::Bf16(work.wait().doing(doing)?),
            Started::I64(work) => Elements::I64(work.wait().doing(doing)?),
            Started::U32(work) => Elements::U32(work.wait().doing(doing)?),
            Started::U8(work) => Elements::U8(work.wait().doing(doing)?),
        })
    }

    /// Whether the result is there.
    pub(crate) fn is_ready(&self) -> bool {
        match self {
            Started::F32(work) => work.test(),
            Started::F64(work) => work.test(),
            Started::F16(work) => work.test(),
            Started::Bf16(work) => work.test(),
            Started::I64(work) => work.test(),
            Started::U32(work) => work.test(),
            Started::U8(work) => work.test(),
        }
    }
}

/// The sum of `parts` equal parts, neighbours first; it stands at the beginning.
pub(crate) fn add_in_order<T: Copy + AddAssign>(mut all: Vec<T>, parts: usize) -> Vec<T> {
    let len = all.len() / parts;
    let mut stride = 1;
    while stride < parts {
        for part in (0..parts - stride).step_by(2 * stride) {
            let (left, right) = all.split_at_mut((part + stride) * len);
            let left = &mut left[part * len..][..len];
            left.iter_mut().zip(&right[..len]).for_each(|(to, from)| *to += *from);
        }
        stride *= 2;
    }
    all
}

fn storage_type(storage: &CpuStorage) -> DType {
    use candle_core::backend::BackendStorage;
    storage.dtype()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_added_first() {
        // 1 + 2^53 is lost, -2^53 + 1 isn't: the order shows in the result.
        let big = (1u64 << 53) as f64;
        let sum = |numbers: [f64; 5]| add_in_order(numbers.to_vec(), 5)[0];
        assert_eq!(sum([big, 1.0, -big, 1.0, 0.5]), (big + 1.0) + (-big + 1.0) + 0.5);
        assert_ne!(sum([big, 1.0, -big, 1.0, 0.5]), (big - big) + (1.0 + 1.0) + 0.5);
        assert_eq!(Elements::U32(vec![1, 10, 2, 20, 3, 30]).added_in_order(3), Elements::U32(vec![6, 60]));
    }
}
