//! The collectives as typed calls.
//!
//! Lengths are in elements; `n` is the communicator's size. Every call returns an error, and moves nothing, if a buffer
//! is too short or a rank out of range; [`crate::ErrorKind`] says what else may go wrong.

use std::sync::Arc;

use super::Communicator;
use super::work::{Work, WorkBuffers};
use crate::collective::Collective;
use crate::error::{Error, Result};
use crate::reduce::{Element, ReduceOp, as_bytes, as_bytes_mut};
use crate::request::{Buffers, Counts, Request};

fn apart<'a, T: Element>(input: &'a [T], output: &'a mut [T]) -> Buffers<'a> {
    Buffers::Separate { input: as_bytes(input), output: as_bytes_mut(output) }
}

fn request<T: Element>(collective: Collective, count: usize, buffers: Buffers<'_>) -> Request<'_> {
    Request::new(collective, T::DATA_TYPE, count, buffers)
}

impl Communicator {
    /// The reduction of all ranks' `input`, on every rank. `output` is as long as `input`, the same on all ranks.
    pub fn all_reduce<T: Element>(&self, input: &[T], output: &mut [T], op: ReduceOp) -> Result<()> {
        self.run(request::<T>(Collective::AllReduce, input.len(), apart(input, output)).op(op))
    }

    /// As [`Communicator::all_reduce`], over the input.
    pub fn all_reduce_in_place<T: Element>(&self, buffer: &mut [T], op: ReduceOp) -> Result<()> {
        let count = buffer.len();
        self.run(request::<T>(Collective::AllReduce, count, Buffers::InPlace(as_bytes_mut(buffer))).op(op))
    }

    /// The reduction of all ranks' `input`, on the root. Other ranks' `output` is not touched and may be empty.
    pub fn reduce<T: Element>(&self, input: &[T], output: &mut [T], op: ReduceOp, root: usize) -> Result<()> {
        self.run(request::<T>(Collective::Reduce, input.len(), apart(input, output)).op(op).root(root))
    }

    /// As [`Communicator::reduce`], over the root's input. Other ranks' buffers are only read.
    pub fn reduce_in_place<T: Element>(&self, buffer: &mut [T], op: ReduceOp, root: usize) -> Result<()> {
        let count = buffer.len();
        let buffers = Buffers::InPlace(as_bytes_mut(buffer));
        self.run(request::<T>(Collective::Reduce, count, buffers).op(op).root(root))
    }

    /// The root's `buffer`, on every rank.
    pub fn broadcast<T: Element>(&self, buffer: &mut [T], root: usize) -> Result<()> {
        let count = buffer.len();
        self.run(request::<T>(Collective::Broadcast, count, Buffers::InPlace(as_bytes_mut(buffer))).root(root))
    }

    /// The root's `input`, in every rank's `output`. Other ranks' `input` is not looked at and may be empty.
    pub fn broadcast_from<T: Element>(&self, input: &[T], output: &mut [T], root: usize) -> Result<()> {
        let count = output.len();
        self.run(request::<T>(Collective::Broadcast, count, apart(input, output)).root(root))
    }

    /// All ranks' `input`, one behind the other in rank order, on every rank. `output` holds `n` times as much.
    pub fn all_gather<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        self.run(request::<T>(Collective::AllGather, input.len(), apart(input, output)))
    }

    /// As [`Communicator::all_gather`] of `buffer.len() / n` elements, with this rank's block already in its place.
    pub fn all_gather_in_place<T: Element>(&self, buffer: &mut [T]) -> Result<()> {
        let count = self.block_of(buffer.len())?;
        self.run(request::<T>(Collective::AllGather, count, Buffers::InPlace(as_bytes_mut(buffer))))
    }

    /// Blocks of different lengths, `counts[rank]` elements of each rank, one behind the other, on every rank.
    ///
    /// `counts` is the same on all ranks.
    pub fn all_gather_v<T: Element>(&self, input: &[T], output: &mut [T], counts: &[usize]) -> Result<()> {
        let counts = Counts { recv_counts: counts, ..Counts::default() };
        self.run(request::<T>(Collective::AllGather, 0, apart(input, output)).counts(counts))
    }

    /// The reduction of all ranks' block `rank`. `input` holds `n` blocks as long as `output`.
    pub fn reduce_scatter<T: Element>(&self, input: &[T], output: &mut [T], op: ReduceOp) -> Result<()> {
        let count = output.len();
        self.run(request::<T>(Collective::ReduceScatter, count, apart(input, output)).op(op))
    }

    /// As [`Communicator::reduce_scatter`], with the result in this rank's block of `buffer`. The other blocks are lost.
    pub fn reduce_scatter_in_place<T: Element>(&self, buffer: &mut [T], op: ReduceOp) -> Result<()> {
        let count = self.block_of(buffer.len())?;
        self.run(request::<T>(Collective::ReduceScatter, count, Buffers::InPlace(as_bytes_mut(buffer))).op(op))
    }

    /// Blocks of different lengths: rank `r` gets the reduction of the `counts[r]` elements of its block.
    ///
    /// `counts` is the same on all ranks.
    pub fn reduce_scatter_v<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
        op: ReduceOp,
    ) -> Result<()> {
        let counts = Counts { send_counts: counts, ..Counts::default() };
        self.run(request::<T>(Collective::ReduceScatter, 0, apart(input, output)).op(op).counts(counts))
    }

    /// Block `r` of `input` to rank `r`; block `r` of `output` from rank `r`. Both hold `n` blocks of
    /// `input.len() / n` elements.
    pub fn all_to_all<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        let count = self.block_of(input.len())?;
        self.run(request::<T>(Collective::AllToAll, count, apart(input, output)))
    }

    /// As [`Communicator::all_to_all`], over the input.
    pub fn all_to_all_in_place<T: Element>(&self, buffer: &mut [T]) -> Result<()> {
        let count = self.block_of(buffer.len())?;
        self.run(request::<T>(Collective::AllToAll, count, Buffers::InPlace(as_bytes_mut(buffer))))
    }

    /// Blocks of different lengths: `send_counts[r]` elements to rank `r`, `recv_counts[r]` from it, one behind the other.
    pub fn all_to_all_v<T: Element>(
        &self,
        input: &[T],
        send_counts: &[usize],
        output: &mut [T],
        recv_counts: &[usize],
    ) -> Result<()> {
        let counts = Counts { send_counts, recv_counts, ..Counts::default() };
        self.run(request::<T>(Collective::AllToAll, 0, apart(input, output)).counts(counts))
    }

    /// All ranks' `input`, one behind the other in rank order, on the root. Other ranks' `output` may be empty.
    pub fn gather<T: Element>(&self, input: &[T], output: &mut [T], root: usize) -> Result<()> {
        self.run(request::<T>(Collective::Gather, input.len(), apart(input, output)).root(root))
    }

    /// Blocks of different lengths, `counts[rank]` elements of each rank. `counts` is the same on all ranks.
    pub fn gather_v<T: Element>(&self, input: &[T], output: &mut [T], counts: &[usize], root: usize) -> Result<()> {
        let counts = Counts { recv_counts: counts, ..Counts::default() };
        self.run(request::<T>(Collective::Gather, 0, apart(input, output)).root(root).counts(counts))
    }

    /// Block `rank` of the root's `input`. Other ranks' `input` may be empty.
    pub fn scatter<T: Element>(&self, input: &[T], output: &mut [T], root: usize) -> Result<()> {
        let count = output.len();
        self.run(request::<T>(Collective::Scatter, count, apart(input, output)).root(root))
    }

    /// Blocks of different lengths, `counts[rank]` elements to each rank. `counts` is the same on all ranks.
    pub fn scatter_v<T: Element>(&self, input: &[T], counts: &[usize], output: &mut [T], root: usize) -> Result<()> {
        let counts = Counts { send_counts: counts, ..Counts::default() };
        self.run(request::<T>(Collective::Scatter, 0, apart(input, output)).root(root).counts(counts))
    }

    /// Returns when all ranks have called it.
    pub fn barrier(&self) -> Result<()> {
        self.run(request::<u8>(Collective::Barrier, 0, Buffers::InPlace(&mut [])))
    }

    /// A message to rank `to`, which receives it with [`Communicator::recv`] or [`Communicator::send_recv`].
    ///
    /// Returns when the message is on its way, which may be before it is received. Messages between two ranks arrive in
    /// the order sent.
    pub fn send<T: Element>(&self, message: &[T], to: usize) -> Result<()> {
        self.run(request::<T>(Collective::Send, message.len(), apart(message, &mut [])).root(to))
    }

    /// The next message from rank `from`, which is as long as `message`.
    pub fn recv<T: Element>(&self, message: &mut [T], from: usize) -> Result<()> {
        let count = message.len();
        self.run(request::<T>(Collective::Recv, count, apart(&[], message)).root(from))
    }

    /// `input` to rank `to` and, at the same time, `output` from rank `from`.
    pub fn send_recv<T: Element>(&self, input: &[T], to: usize, output: &mut [T], from: usize) -> Result<()> {
        self.run(request::<T>(Collective::SendRecv, 0, apart(input, output)).root(to).source(from))
    }
}

impl Communicator {
    /// The length of each rank's block in a buffer that holds them all.
    pub(crate) fn block_of(&self, elements: usize) -> Result<usize> {
        let size = self.size();
        if elements.is_multiple_of(size) {
            return Ok(elements / size);
        }
        let cause = format!("{elements} elements are not {size} blocks of one length");
        Err(Error::invalid(cause).hint("make the buffer's length a multiple of the number of ranks, or pass counts"))
    }
}

/// Calls that own their buffers and go on while the caller computes.
impl Communicator {
    fn start<T: Element>(
        &self,
        mut buffers: WorkBuffers<T>,
        shape: impl Fn(Request<'_>) -> Request<'_>,
        collective: Collective,
        count: usize,
    ) -> Result<Work<T>> {
        self.after_devices()?;
        let lent = if buffers.in_place {
            Buffers::InPlace(as_bytes_mut(&mut buffers.input))
        } else {
            Buffers::Separate { input: as_bytes(&buffers.input), output: as_bytes_mut(&mut buffers.output) }
        };
        let prepared = self.prepare(shape(request::<T>(collective, count, lent)))?;
        // The elements don't move when their vectors do.
        let buffers = Arc::new(buffers);
        let started = self.start_prepared(prepared, Some(buffers.keep()))?;
        Ok(Work::new(started, buffers))
    }

    /// Starts [`Communicator::all_reduce_in_place`].
    ///
    /// ```
    /// # use paceline_comm::{Communicator, ReduceOp};
    /// # let ranks = Communicator::in_process(2)?;
    /// # std::thread::scope(|scope| for comm in &ranks { scope.spawn(move || {
    /// let work = comm.start_all_reduce(vec![1i64; 1000], ReduceOp::Sum).unwrap();
    /// // ... compute something else ...
    /// assert_eq!(work.wait().unwrap(), vec![2i64; 1000]);
    /// # }); });
    /// # Ok::<(), paceline_comm::Error>(())
    /// ```
    pub fn start_all_reduce<T: Element>(&self, buffer: Vec<T>, op: ReduceOp) -> Result<Work<T>> {
        let count = buffer.len();
        self.start(over(buffer), |r| r.op(op), Collective::AllReduce, count)
    }

    /// Starts [`Communicator::reduce_in_place`].
    pub fn start_reduce<T: Element>(&self, buffer: Vec<T>, op: ReduceOp, root: usize) -> Result<Work<T>> {
        let count = buffer.len();
        self.start(over(buffer), |r| r.op(op).root(root), Collective::Reduce, count)
    }

    /// Starts [`Communicator::broadcast`].
    pub fn start_broadcast<T: Element>(&self, buffer: Vec<T>, root: usize) -> Result<Work<T>> {
        let count = buffer.len();
        self.start(over(buffer), |r| r.root(root), Collective::Broadcast, count)
    }

    /// Starts [`Communicator::all_gather`].
    pub fn start_all_gather<T: Element>(&self, input: Vec<T>, output: Vec<T>) -> Result<Work<T>> {
        let count = input.len();
        self.start(into(input, output), |r| r, Collective::AllGather, count)
    }

    /// Starts [`Communicator::reduce_scatter`].
    pub fn start_reduce_scatter<T: Element>(&self, input: Vec<T>, output: Vec<T>, op: ReduceOp) -> Result<Work<T>> {
        let count = output.len();
        self.start(into(input, output), |r| r.op(op), Collective::ReduceScatter, count)
    }

    /// Starts [`Communicator::all_to_all`].
    pub fn start_all_to_all<T: Element>(&self, input: Vec<T>, output: Vec<T>) -> Result<Work<T>> {
        let count = self.block_of(input.len())?;
        self.start(into(input, output), |r| r, Collective::AllToAll, count)
    }

    /// Starts [`Communicator::gather`].
    pub fn start_gather<T: Element>(&self, input: Vec<T>, output: Vec<T>, root: usize) -> Result<Work<T>> {
        let count = input.len();
        self.start(into(input, output), |r| r.root(root), Collective::Gather, count)
    }

    /// Starts [`Communicator::scatter`].
    pub fn start_scatter<T: Element>(&self, input: Vec<T>, output: Vec<T>, root: usize) -> Result<Work<T>> {
        let count = output.len();
        self.start(into(input, output), |r| r.root(root), Collective::Scatter, count)
    }

    /// Starts [`Communicator::barrier`].
    pub fn start_barrier(&self) -> Result<Work<u8>> {
        self.start(over(Vec::new()), |r| r, Collective::Barrier, 0)
    }

    /// Starts [`Communicator::send`]; the result is the message, back.
    pub fn start_send<T: Element>(&self, message: Vec<T>, to: usize) -> Result<Work<T>> {
        let count = message.len();
        self.start(over(message), |r| r.root(to), Collective::Send, count)
    }

    /// Starts [`Communicator::recv`] into `message`.
    pub fn start_recv<T: Element>(&self, message: Vec<T>, from: usize) -> Result<Work<T>> {
        let count = message.len();
        self.start(over(message), |r| r.root(from), Collective::Recv, count)
    }
}

fn over<T>(buffer: Vec<T>) -> WorkBuffers<T> {
    WorkBuffers { input: buffer, output: Vec::new(), in_place: true }
}

fn into<T>(input: Vec<T>, output: Vec<T>) -> WorkBuffers<T> {
    WorkBuffers { input, output, in_place: false }
}
