//! A communicator along some axes, with collectives on tensors.

use std::sync::Arc;

use candle_core::{Tensor, shape::Dim};
use paceline_comm::{Collective, Communicator, ReduceOp};

use super::elements::Elements;
use super::traffic::Traffic;
use crate::error::{Doing, Error, Result};
use crate::mesh::{Axis, Mesh};

/// The ranks along some axes. Copies share the communicator and the account of traffic.
#[derive(Clone)]
pub struct Group(Arc<Inner>);

struct Inner {
    comm: Arc<Communicator>,
    axes: Vec<Axis>,
    traffic: Traffic,
}

impl Group {
    /// The ranks of a mesh along some axes. All ranks of the mesh must ask for their groups in the same order.
    ///
    /// # Errors
    /// The ranks don't come together.
    pub fn along(mesh: &Mesh, axes: &[Axis]) -> Result<Group> {
        Ok(Group(Arc::new(Inner { comm: mesh.group(axes)?, axes: axes.to_vec(), traffic: Traffic::default() })))
    }

    /// A group of a communicator that is there already.
    #[must_use]
    pub fn of(comm: Communicator, axis: Axis) -> Group {
        Group(Arc::new(Inner { comm: Arc::new(comm), axes: vec![axis], traffic: Traffic::default() }))
    }

    /// A group of one rank, on which every collective is a copy.
    ///
    /// # Errors
    /// The communicator can't be made.
    pub fn alone(axis: Axis) -> Result<Group> {
        let comm = Communicator::in_process(1).doing(|| "making a group of one rank".to_owned())?.remove(0);
        Ok(Group::of(comm, axis))
    }

    /// This rank's place.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.0.comm.rank()
    }

    /// How many ranks there are.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.comm.size()
    }

    /// The axes along which it runs.
    #[must_use]
    pub fn axes(&self) -> &[Axis] {
        &self.0.axes
    }

    /// The axis along which it runs, or the first of several.
    #[must_use]
    pub fn axis(&self) -> Axis {
        self.0.axes[0]
    }

    /// The communicator.
    #[must_use]
    pub fn comm(&self) -> &Communicator {
        &self.0.comm
    }

    /// What it has moved.
    #[must_use]
    pub fn traffic(&self) -> &Traffic {
        &self.0.traffic
    }

    pub(crate) fn count(&self, collective: Collective, payload_bytes: usize) {
        self.0.traffic.count(collective, self.size(), payload_bytes);
    }

    fn name(&self) -> String {
        self.0.axes.iter().map(|axis| axis.name()).collect::<Vec<_>>().join("+")
    }

    fn says(&self, what: &str, tensor: &Tensor) -> String {
        format!("{what} of a tensor of {:?} along {}", tensor.dims(), self.name())
    }

    /// The sum, or what `op` makes of it, of all ranks' tensors, which have one shape.
    ///
    /// # Errors
    /// The collective fails.
    pub fn all_reduce(&self, tensor: &Tensor, op: ReduceOp) -> Result<Tensor> {
        if self.size() == 1 {
            return Ok(tensor.detach());
        }
        let mut elements = Elements::of(tensor)?;
        self.count(Collective::AllReduce, elements.bytes());
        elements.all_reduce(self.comm(), op).doing(|| self.says("all_reduce", tensor))?;
        elements.into_tensor(tensor.shape())
    }

    /// All ranks' tensors, which have one shape, one after another along `dim`.
    ///
    /// # Errors
    /// There is no such dimension, or the collective fails.
    pub fn all_gather(&self, tensor: &Tensor, dim: impl Dim) -> Result<Tensor> {
        let dim = dim.to_index(tensor.shape(), "all_gather")?;
        if self.size() == 1 {
            return Ok(tensor.detach());
        }
        let elements = Elements::of(tensor)?;
        self.count(Collective::AllGather, elements.bytes() * self.size());
        let all = elements.all_gather(self.comm()).doing(|| self.says("all_gather", tensor))?;
        let mut dims = vec![self.size()];
        dims.extend(tensor.dims());
        let blocks = all.into_tensor(dims)?;
        Ok(if dim == 0 {
            blocks.flatten(0, 1)?
        } else {
            Tensor::cat(
                &blocks.chunk(self.size(), 0)?.iter().map(|block| block.squeeze(0)).collect::<Result<Vec<_>, _>>()?,
                dim,
            )?
        })
    }

    /// This rank's part along `dim` of the sum of all ranks' tensors.
    ///
    /// # Errors
    /// The dimension can't be cut into as many equal parts as there are ranks, or the collective fails.
    pub fn reduce_scatter(&self, tensor: &Tensor, dim: impl Dim, op: ReduceOp) -> Result<Tensor> {
        let dim = dim.to_index(tensor.shape(), "reduce_scatter")?;
        if self.size() == 1 {
            return Ok(tensor.detach());
        }
        let blocks = self.blocks(tensor, dim)?;
        let elements = Elements::of(&blocks)?;
        self.count(Collective::ReduceScatter, elements.bytes());
        let part = elements.reduce_scatter(self.comm(), op).doing(|| self.says("reduce_scatter", tensor))?;
        part.into_tensor(&blocks.dims()[1..])
    }

    /// Part *i* along `cut` to rank *i*; what comes is put together along `join`, in rank order.
    ///
    /// # Errors
    /// The dimension can't be cut into as many equal parts as there are ranks, or the collective fails.
    pub fn all_to_all(&self, tensor: &Tensor, cut: impl Dim, join: impl Dim) -> Result<Tensor> {
        let cut = cut.to_index(tensor.shape(), "all_to_all")?;
        let join = join.to_index(tensor.shape(), "all_to_all")?;
        if self.size() == 1 {
            return Ok(tensor.detach());
        }
        let blocks = self.blocks(tensor, cut)?;
        let elements = Elements::of(&blocks)?;
        self.count(Collective::AllToAll, elements.bytes());
        let received = elements.all_to_all(self.comm()).doing(|| self.says("all_to_all", tensor))?;
        let received = received.into_tensor(blocks.shape())?;
        let parts = (0..self.size()).map(|rank| received.get(rank)).collect::<Result<Vec<_>, _>>()?;
        Ok(Tensor::cat(&parts, join)?)
    }

    /// Rank `root`'s tensor; all give one of the same shape.
    ///
    /// # Errors
    /// The collective fails.
    pub fn broadcast(&self, tensor: &Tensor, root: usize) -> Result<Tensor> {
        if self.size() == 1 {
            return Ok(tensor.detach());
        }
        let mut elements = Elements::of(tensor)?;
        self.count(Collective::Broadcast, elements.bytes());
        elements.broadcast(self.comm(), root).doing(|| self.says("broadcast", tensor))?;
        elements.into_tensor(tensor.shape())
    }

    /// This rank's part of a tensor that all ranks have, along `dim`.
    ///
    /// # Errors
    /// The dimension can't be cut into as many equal parts as there are ranks.
    pub fn part(&self, tensor: &Tensor, dim: impl Dim) -> Result<Tensor> {
        let dim = dim.to_index(tensor.shape(), "part")?;
        if self.size() == 1 {
            return Ok(tensor.detach());
        }
        let len = self.part_len(tensor, dim)?;
        Ok(tensor.detach().narrow(dim, self.rank() * len, len)?.contiguous()?)
    }

    fn part_len(&self, tensor: &Tensor, dim: usize) -> Result<usize> {
        let len = tensor.dim(dim)?;
        if len % self.size() != 0 {
            let (dims, ranks) = (tensor.dims(), self.size());
            return Err(Error::invalid(format!(
                "dimension {dim} of {dims:?} can't be cut into {ranks} equal parts along {}",
                self.name()
            )));
        }
        Ok(len / self.size())
    }

    /// The ranks' parts along `dim`, stacked.
    fn blocks(&self, tensor: &Tensor, dim: usize) -> Result<Tensor> {
        let len = self.part_len(tensor, dim)?;
        let part = |rank: usize| tensor.narrow(dim, rank * len, len);
        let parts = (0..self.size()).map(part).collect::<Result<Vec<_>, _>>()?;
        Ok(Tensor::stack(&parts, 0)?.detach())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn along_any_dimension() {
        let comms = Communicator::in_process(3).unwrap();
        std::thread::scope(|scope| {
            for comm in comms {
                scope.spawn(move || {
                    let group = Group::of(comm, Axis::Tp);
                    let whole = Tensor::arange(0f64, 108.0, &Device::Cpu).unwrap().reshape((3, 6, 6)).unwrap();
                    for dim in 0..3 {
                        let part = group.part(&whole, dim).unwrap();
                        let gathered = group.all_gather(&part, dim).unwrap();
                        assert_eq!(gathered.to_vec3::<f64>().unwrap(), whole.to_vec3::<f64>().unwrap());
                        let scattered = group.reduce_scatter(&whole, dim, ReduceOp::Sum).unwrap();
                        let want = (&part * 3.0).unwrap();
                        assert_eq!(scattered.to_vec3::<f64>().unwrap(), want.to_vec3::<f64>().unwrap());
                    }
                    let part = group.part(&whole, 1).unwrap();
                    let turned = group.all_to_all(&part, 2, 1).unwrap();
                    assert_eq!(
                        turned.to_vec3::<f64>().unwrap(),
                        group.part(&whole, 2).unwrap().to_vec3::<f64>().unwrap()
                    );
                    assert_eq!(group.traffic().of(Collective::AllGather).wire_bytes, 3 * 108 * 8 * 2 / 3);
                    let error = group.part(&whole, 1).and(group.part(&whole.narrow(1, 0, 4).unwrap(), 1)).unwrap_err();
                    assert!(error.to_string().contains("3 equal parts along tp"), "{error}");
                });
            }
        });
    }
}
