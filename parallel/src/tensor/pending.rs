//! Collectives on tensors that go on while this rank computes.

use std::sync::Mutex;

use candle_core::Tensor;
use paceline_comm::{Collective, ReduceOp};

use super::tensor_parallel::SEQUENCE;
use crate::error::{Doing, Result};
use crate::group::{Elements, Group, Started};

/// A tensor that is on its way.
pub(crate) struct Pending {
    started: Started,
    doing: String,
    /// Of what arrives.
    dims: Vec<usize>,
    /// Along which the ranks' blocks, which arrive one after another, belong.
    join: Option<usize>,
}

impl Pending {
    /// Starts the sum of all ranks' tensors.
    pub(crate) fn all_reduce(group: &Group, tensor: &Tensor) -> Result<Pending> {
        let doing = format!("all_reduce of a gradient of {:?}", tensor.dims());
        let elements = Elements::of(tensor)?;
        group.count(Collective::AllReduce, elements.bytes());
        let started = elements.start_all_reduce(group.comm(), ReduceOp::Sum).doing(|| doing.clone())?;
        Ok(Pending { started, doing, dims: tensor.dims().to_vec(), join: None })
    }

    /// Starts the sum of all ranks' tensors, of which each rank gets its part along the sequence.
    pub(crate) fn reduce_scatter(group: &Group, tensor: &Tensor) -> Result<Pending> {
        let doing = format!("reduce_scatter of a gradient of {:?}", tensor.dims());
        let blocks = cut(tensor, SEQUENCE, group.size())?;
        let elements = Elements::of(&blocks)?;
        group.count(Collective::ReduceScatter, elements.bytes());
        let started = elements.start_reduce_scatter(group.comm(), ReduceOp::Sum).doing(|| doing.clone())?;
        Ok(Pending { started, doing, dims: blocks.dims()[1..].to_vec(), join: None })
    }

    /// Starts to bring all ranks' parts along the sequence together.
    pub(crate) fn all_gather(group: &Group, tensor: &Tensor) -> Result<Pending> {
        let doing = format!("all_gather of an activation of {:?}", tensor.dims());
        let elements = Elements::of(tensor)?;
        group.count(Collective::AllGather, elements.bytes() * group.size());
        let started = elements.start_all_gather(group.comm()).doing(|| doing.clone())?;
        let dims = [&[group.size()], tensor.dims()].concat();
        Ok(Pending { started, doing, dims, join: Some(SEQUENCE) })
    }

    /// Waits for it.
    pub(crate) fn wait(self) -> Result<Tensor> {
        let tensor = self.started.wait(|| self.doing)?.into_tensor(self.dims)?;
        self.join.map_or(Ok(tensor.clone()), |dim| joined(&tensor, dim))
    }
}

/// The equal parts along a dimension, stacked.
fn cut(tensor: &Tensor, dim: usize, parts: usize) -> Result<Tensor> {
    let mut dims = tensor.dims().to_vec();
    dims.splice(dim..=dim, [parts, dims[dim] / parts]);
    let order: Vec<usize> = std::iter::once(dim).chain((0..dims.len()).filter(|other| *other != dim)).collect();
    Ok(tensor.reshape(dims)?.permute(order)?.contiguous()?)
}

/// Stacked parts, one after another along a dimension.
fn joined(blocks: &Tensor, dim: usize) -> Result<Tensor> {
    let order: Vec<usize> = (1..=dim).chain([0]).chain(dim + 1..blocks.rank()).collect();
    Ok(blocks.permute(order)?.contiguous()?.flatten(dim, dim + 1)?)
}

/// The whole of an input of which each rank keeps its part, brought once for all weights whose gradients need it.
pub(crate) struct Whole {
    group: Group,
    state: Mutex<State>,
}

enum State {
    Part(Tensor),
    Coming(Pending),
    Here(Tensor),
    /// It could not be brought.
    Lost,
}

impl Whole {
    /// What this rank has a part of, along the sequence.
    pub(crate) fn of_part(group: &Group, part: Tensor) -> Whole {
        Whole { group: group.clone(), state: Mutex::new(State::Part(part)) }
    }

    /// What is here.
    pub(crate) fn here(group: &Group, whole: Tensor) -> Whole {
        Whole { group: group.clone(), state: Mutex::new(State::Here(whole)) }
    }

    /// Sends for the other parts, if they aren't here.
    pub(crate) fn start(&self) -> Result<()> {
        let mut state = self.state.lock().expect("no panic while held");
        if let State::Part(part) = &*state {
            *state = State::Coming(Pending::all_gather(&self.group, part)?);
        }
        Ok(())
    }

    /// All of it, as rows.
    pub(crate) fn rows(&self) -> Result<Tensor> {
        self.start()?;
        let mut state = self.state.lock().expect("no panic while held");
        let whole = match std::mem::replace(&mut *state, State::Lost) {
            State::Coming(pending) => pending.wait()?,
            State::Here(whole) => whole,
            State::Part(_) | State::Lost => {
                return Err(crate::Error::invalid("a layer's input was lost when the ranks' parts were gathered"));
            }
        };
        *state = State::Here(whole.clone());
        rows(&whole)
    }
}

/// A tensor as a matrix, with its last dimension.
pub(crate) fn rows(tensor: &Tensor) -> Result<Tensor> {
    let width = tensor.dim(tensor.rank() - 1)?;
    Ok(tensor.reshape(((), width))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::Axis;
    use candle_core::Device;
    use paceline_comm::Communicator;

    #[test]
    fn what_is_started_arrives_as_the_groups_collectives_do() {
        let comms = Communicator::in_process(2).unwrap();
        std::thread::scope(|scope| {
            for comm in comms {
                scope.spawn(move || {
                    let group = Group::of(comm, Axis::Tp);
                    let tensor = (Tensor::arange(0f64, 24.0, &Device::Cpu).unwrap().reshape((2, 4, 3)).unwrap()
                        * (group.rank() + 1) as f64)
                        .unwrap();
                    let same = |one: Tensor, two: Tensor| {
                        assert_eq!(one.to_vec3::<f64>().unwrap(), two.to_vec3::<f64>().unwrap());
                    };
                    let sum = Pending::all_reduce(&group, &tensor).unwrap();
                    let part = Pending::reduce_scatter(&group, &tensor).unwrap();
                    let all = Pending::all_gather(&group, &tensor).unwrap();
                    same(sum.wait().unwrap(), group.all_reduce(&tensor, ReduceOp::Sum).unwrap());
                    same(part.wait().unwrap(), group.reduce_scatter(&tensor, SEQUENCE, ReduceOp::Sum).unwrap());
                    same(all.wait().unwrap(), group.all_gather(&tensor, SEQUENCE).unwrap());
                });
            }
        });
    }
}
