//! PowerSGD: matrices are sent as two thin factors, and what that loses is added to the next gradient.
//!
//! Vogels, Karimireddy and Jaggi, "PowerSGD: Practical low-rank gradient compression for distributed optimization" (NeurIPS
//! 2019). For a matrix M of m x k, of which each rank has a part M_i: P = sum of M_i Q, orthonormalised; Q_i = transposed
//! M_i times P, the sum of which is Q; the result is P Q^T. That is one step of subspace iteration from the last step's Q (the warm
//! start), and (m + k) r numbers instead of m k. Each rank keeps M_i - P Q_i^T for the next time, so that the results plus what the
//! ranks still hold are always the sum of all gradients so far: nothing is lost, only late.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use candle_core::{DType, Device, Tensor};
use paceline_comm::{Collective, ReduceOp};

use super::{CommHook, Reduction};
use crate::error::{Doing, Result};
use crate::group::{Elements, Group, Started};
use crate::random::Stream;
use crate::state::{Numbers, Segment};

/// How much is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PowerSgdOptions {
    /// The rank of what is sent of each matrix.
    pub rank: usize,
    /// Where the first Q comes from; the same on all ranks.
    pub seed: u64,
}

impl Default for PowerSgdOptions {
    fn default() -> PowerSgdOptions {
        PowerSgdOptions { rank: 2, seed: 0 }
    }
}

/// Sends matrices as two factors of low rank. Vectors, and matrices that two factors would make no smaller, are sent whole.
#[derive(Clone)]
pub struct PowerSgd {
    options: PowerSgdOptions,
    memories: Arc<Mutex<BTreeMap<String, Memory>>>,
}

/// What is remembered of a matrix.
#[derive(Clone)]
struct Memory {
    /// k x r: where the last step's Q pointed.
    q: Tensor,
    /// m x k: what this rank's gradients lack in the results so far.
    error: Tensor,
}

impl PowerSgd {
    /// A compression that remembers nothing yet.
    #[must_use]
    pub fn new(options: PowerSgdOptions) -> PowerSgd {
        PowerSgd { options, memories: Arc::default() }
    }

    /// What this rank's gradients of a parameter lack in the results so far, as a matrix; `None` if it is sent whole, or
    /// hasn't been sent.
    #[must_use]
    pub fn error_of(&self, name: &str) -> Option<Tensor> {
        self.memories.lock().expect("no panic while held").get(name).map(|memory| memory.error.clone())
    }

    /// As which matrix a stretch is compressed, if at all.
    fn matrix(&self, segment: &Segment) -> Option<(usize, usize)> {
        let shape = segment.parameter.part().shape();
        let m = *shape.first().filter(|m| shape.len() > 1 && **m > 0)?;
        let k = segment.range.len() / m;
        (segment.range.len() == segment.parameter.part().len() && (m + k) * self.options.rank < m * k).then_some((m, k))
    }

    fn recall(&self, name: &str, (m, k): (usize, usize), dtype: DType) -> Result<Memory> {
        if let Some(memory) = self.memories.lock().expect("no panic while held").get(name) {
            return Ok(memory.clone());
        }
        let (rank, stream) = (self.options.rank, Stream::new(self.options.seed, name));
        let numbers: Vec<f64> = (0..k * rank).map(|place| stream.normal(place as u64)).collect();
        let q = Tensor::from_vec(numbers, (k, rank), &Device::Cpu)?.to_dtype(dtype)?;
        Ok(Memory { q, error: Tensor::zeros((m, k), dtype, &Device::Cpu)? })
    }
}

impl CommHook for PowerSgd {
    fn start(&self, segments: &[Segment], gradients: Numbers, group: &Group) -> Result<Box<dyn Reduction>> {
        let dtype = gradients.dtype();
        let (mut matrices, mut whole, mut factors) = (Vec::new(), Vec::new(), Vec::new());
        for segment in segments {
            let Some((m, k)) = self.matrix(segment) else {
                whole.push(segment.range.clone());
                continue;
            };
            let Memory { q, error } = self.recall(segment.parameter.name(), (m, k), dtype)?;
            let mine = (gradients.tensor(segment.range.clone(), (m, k), dtype)? + error)?;
            factors.push(mine.matmul(&q)?);
            matrices.push(Matrix { name: segment.parameter.name().to_owned(), first: segment.range.start, mine, q });
        }
        let parts = factors.iter().map(|factor| factor.flatten_all().map_err(Into::into));
        let rest = whole.iter().map(|range| gradients.tensor(range.clone(), range.len(), dtype));
        let sent = joined(parts.chain(rest), dtype)?;
        group.count(Collective::AllReduce, sent.bytes());
        let started = sent.start_all_reduce(group.comm(), ReduceOp::Sum);
        let started = started.doing(|| "starting to add the first factors of gradients".to_owned())?;
        Ok(Box::new(FirstFactors { hook: self.clone(), matrices, whole, started, gradients, group: group.clone() }))
    }
}

struct Matrix {
    name: String,
    first: usize,
    mine: Tensor,
    q: Tensor,
}

struct FirstFactors {
    hook: PowerSgd,
    matrices: Vec<Matrix>,
    whole: Vec<std::ops::Range<usize>>,
    started: Started,
    /// Becomes the result.
    gradients: Numbers,
    group: Group,
}

impl Reduction for FirstFactors {
    fn is_ready(&self) -> bool {
        // The second factors are still to be sent.
        false
    }

    fn finish(self: Box<Self>) -> Result<Numbers> {
        let FirstFactors { hook, matrices, whole, started, mut gradients, group } = *self;
        let (rank, dtype) = (hook.options.rank, gradients.dtype());
        let first = Numbers::from_elements(started.wait(|| "adding the first factors of gradients".to_owned())?)?;
        let (mut begin, mut ps, mut qs) = (0, Vec::new(), Vec::new());
        for matrix in &matrices {
            let len = matrix.mine.dim(0)? * rank;
            let p = orthonormal(&first.tensor(begin..begin + len, (matrix.mine.dim(0)?, rank), dtype)?)?;
            begin += len;
            qs.push(matrix.mine.t()?.matmul(&p)?);
            ps.push(p);
        }
        for range in whole {
            gradients.write(range.start, &first.tensor(begin..begin + range.len(), range.len(), dtype)?)?;
            begin += range.len();
        }
        let mut second = joined(qs.iter().map(|q| q.flatten_all().map_err(Into::into)), dtype)?;
        if !matrices.is_empty() {
            group.count(Collective::AllReduce, second.bytes());
            let added = second.all_reduce(group.comm(), ReduceOp::Sum);
            added.doing(|| "adding the second factors of gradients".to_owned())?;
        }
        let (second, mut begin) = (Numbers::from_elements(second)?, 0);
        let mut memories = hook.memories.lock().expect("no panic while held");
        for ((matrix, p), mine) in matrices.into_iter().zip(ps).zip(qs) {
            let len = mine.elem_count();
            let q = second.tensor(begin..begin + len, mine.shape(), dtype)?;
            begin += len;
            gradients.write(matrix.first, &p.matmul(&q.t()?)?)?;
            let error = (matrix.mine - p.matmul(&mine.t()?)?)?;
            memories.insert(matrix.name, Memory { q: renewed(&q, &matrix.q)?, error });
        }
        Ok(gradients)
    }
}

fn joined(parts: impl Iterator<Item = Result<Tensor>>, dtype: DType) -> Result<Elements> {
    let parts = parts.collect::<Result<Vec<_>>>()?;
    if parts.is_empty() {
        return Elements::zeros(dtype, 0);
    }
    Elements::of(&Tensor::cat(&parts, 0)?)
}

/// The same span with columns of length 1 at right angles (modified Gram-Schmidt, twice, in double precision). Columns that
/// add nothing to those before them become zero.
fn orthonormal(matrix: &Tensor) -> Result<Tensor> {
    let mut columns = matrix.t()?.to_dtype(DType::F64)?.to_vec2::<f64>()?;
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for place in 0..columns.len() {
        let (done, rest) = columns.split_at_mut(place);
        let column = &mut rest[0];
        let before = dot(column, column).sqrt();
        for other in done.iter().chain(done.iter()) {
            let share = dot(column, other);
            column.iter_mut().zip(other).for_each(|(to, from)| *to -= share * from);
        }
        let length = dot(column, column).sqrt();
        // What is left of a column within the span of the others is rounding, which would point anywhere.
        let factor = if length > 1e-7 * before { 1.0 / length } else { 0.0 };
        column.iter_mut().for_each(|number| *number *= factor);
    }
    Ok(Tensor::new(columns, &Device::Cpu)?.t()?.contiguous()?.to_dtype(matrix.dtype())?)
}

/// The next step's start: this step's Q, but for columns that are zero, from which nothing could ever come again.
fn renewed(q: &Tensor, before: &Tensor) -> Result<Tensor> {
    let mut columns = q.t()?.to_dtype(DType::F64)?.to_vec2::<f64>()?;
    for (column, before) in columns.iter_mut().zip(before.t()?.to_dtype(DType::F64)?.to_vec2::<f64>()?) {
        if column.iter().all(|number| *number == 0.0) {
            *column = before;
        }
    }
    Ok(Tensor::new(columns, &Device::Cpu)?.t()?.contiguous()?.to_dtype(q.dtype())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_become_orthonormal_or_zero() {
        let matrix = Tensor::new(&[[3f64, 6.0, 1.0], [4.0, 8.0, 0.0], [0.0, 0.0, 2.0]], &Device::Cpu).unwrap();
        let made = orthonormal(&matrix).unwrap();
        let gram = made.t().unwrap().matmul(&made).unwrap().to_vec2::<f64>().unwrap();
        for (row, column, want) in [(0, 0, 1.0), (1, 1, 0.0), (2, 2, 1.0), (0, 2, 0.0), (0, 1, 0.0)] {
            assert!((gram[row][column] - want).abs() < 1e-14, "{gram:?}");
        }
    }
}
