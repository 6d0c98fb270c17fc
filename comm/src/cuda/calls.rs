//! The collectives as typed calls over memory of devices. Lengths are those of the calls of [`Communicator`](crate::Communicator).

use super::buffer::{DeviceBuffers, DeviceInput, DeviceOutput, Lent};
use super::{DeviceCommunicator, DeviceGroup, DeviceWork, Stream};
use crate::collective::Collective;
use crate::error::Result;
use crate::reduce::{Element, ReduceOp};
use crate::request::{Counts, Request};

/// Calls that become work of one stream: see [`DeviceCommunicator::on`].
///
/// Every call returns an error, and puts nothing into the stream, if a buffer is too short, a rank out of range or the
/// communicator has failed. The result may be dropped: the stream runs the call all the same.
#[derive(Clone, Copy, Debug)]
pub struct OnStream<'a> {
    comm: &'a DeviceCommunicator,
    stream: &'a Stream,
}

type DeviceRequest<'a> = Request<'a, DeviceBuffers>;

fn apart(input: &Lent<'_>, output: &Lent<'_>) -> DeviceBuffers {
    DeviceBuffers::Separate { input: (input.address, input.bytes), output: (output.address, output.bytes) }
}

impl<'a> OnStream<'a> {
    pub(super) fn new(comm: &'a DeviceCommunicator, stream: &'a Stream) -> OnStream<'a> {
        OnStream { comm, stream }
    }

    /// Any collective, described by data.
    ///
    /// # Safety
    ///
    /// The addresses are those of memory that the stream's device can read, and write where it is the output, until the
    /// stream has done the call.
    ///
    /// # Errors
    ///
    /// As for each collective.
    pub unsafe fn run(&self, request: DeviceRequest<'_>) -> Result<DeviceWork> {
        self.comm.enqueue(self.stream, request)
    }

    /// Several calls, described by data: messages go together, as in a [group](OnStream::group), before all that is no message.
    ///
    /// # Safety
    ///
    /// As of [`OnStream::run`], for all of them.
    ///
    /// # Errors
    ///
    /// As for each; those before it are under way.
    pub unsafe fn run_all(&self, requests: Vec<DeviceRequest<'_>>) -> Result<DeviceWork> {
        let (messages, others): (Vec<_>, Vec<_>) =
            requests.into_iter().partition(|request| request.collective.is_message());
        let has_messages = !messages.is_empty() || others.is_empty();
        let mut last = if has_messages { Some(self.give(messages)?) } else { None };
        for request in others {
            last = Some(self.comm.enqueue(self.stream, request)?);
        }
        Ok(last.expect("where nothing is called, a group of nothing is"))
    }

    fn call<T: Element, I: DeviceInput<T> + ?Sized, O: DeviceOutput<T> + ?Sized>(
        &self,
        collective: Collective,
        (input, output): (&I, &mut O),
        count: impl FnOnce(usize, usize) -> Result<usize>,
        shape: impl for<'r> FnOnce(DeviceRequest<'r>) -> DeviceRequest<'r>,
        counts: Option<Counts<'_>>,
    ) -> Result<DeviceWork> {
        let (input, output) = (input.lend(self.stream)?, output.lend_mut(self.stream)?);
        let size = size_of::<T>();
        let count = count(input.bytes / size, output.bytes / size)?;
        let request = shape(Request::new(collective, T::DATA_TYPE, count, apart(&input, &output)));
        self.comm.enqueue(self.stream, Request { counts, ..request })
    }

    fn over<T: Element, B: DeviceOutput<T> + ?Sized>(
        &self,
        collective: Collective,
        buffer: &mut B,
        count: impl FnOnce(usize) -> Result<usize>,
        shape: impl for<'r> FnOnce(DeviceRequest<'r>) -> DeviceRequest<'r>,
    ) -> Result<DeviceWork> {
        let buffer = buffer.lend_mut(self.stream)?;
        let count = count(buffer.bytes / size_of::<T>())?;
        let buffers = DeviceBuffers::InPlace((buffer.address, buffer.bytes));
        self.comm.enqueue(self.stream, shape(Request::new(collective, T::DATA_TYPE, count, buffers)))
    }

    /// The reduction of all ranks' `input`, on every rank.
    pub fn all_reduce<T: Element>(
        &self,
        input: &(impl DeviceInput<T> + ?Sized),
        output: &mut (impl DeviceOutput<T> + ?Sized),
        op: ReduceOp,
    ) -> Result<DeviceWork> {
        self.call(Collective::AllReduce, (input, output), |input, _| Ok(input), |r| r.op(op), None)
    }

    /// As [`OnStream::all_reduce`], over the input.
    pub fn all_reduce_in_place<T: Element>(
        &self,
        buffer: &mut (impl DeviceOutput<T> + ?Sized),
        op: ReduceOp,
    ) -> Result<DeviceWork> {
        self.over(Collective::AllReduce, buffer, Ok, |r| r.op(op))
    }

    /// The reduction of all ranks' `input`, on the root. Other ranks' `output` is not touched and may be empty.
    pub fn reduce<T: Element>(
        &self,
        input: &(impl DeviceInput<T> + ?Sized),
        output: &mut (impl DeviceOutput<T> + ?Sized),
        op: ReduceOp,
        root: usize,
    ) -> Result<DeviceWork> {
        self.call(Collective::Reduce, (input, output), |input, _| Ok(input), |r| r.op(op).root(root), None)
    }

    /// The root's `buffer`, on every rank.
    pub fn broadcast<T: Element>(
        &self,
        buffer: &mut (impl DeviceOutput<T> + ?Sized),
        root: usize,
    ) -> Result<DeviceWork> {
        self.over(Collective::Broadcast, buffer, Ok, |r| r.root(root))
    }

    /// The root's `input`, in every rank's `output`. Other ranks' `input` is not looked at and may be empty.
    pub fn broadcast_from<T: Element>(
        &self,
        input: &(impl DeviceInput<T> + ?Sized),
        output: &mut (impl DeviceOutput<T> + ?Sized),
        root: usize,
    ) -> Result<DeviceWork> {
        self.call(Collective::Broadcast, (input, output), |_, output| Ok(output), |r| r.root(root), None)
    }

    /// All ranks' `input`, one behind the other in rank order, on every rank.
    pub fn all_gather<T: Element>(
        &self,
        input: &(impl DeviceInput<T> + ?Sized),
        output: &mut (impl DeviceOutput<T> + ?Sized),
    ) -> Result<DeviceWork> {
        self.call(Collective::AllGather, (input, output), |input, _| Ok(input), |r| r, None)
    }

    /// As [`OnStream::all_gather`], with this rank's block already in its place.
    pub fn all_gather_in_place<T: Element>(&self, buffer: &mut (impl DeviceOutput<T> + ?Sized)) -> Result<DeviceWork> {
        self.over(Collective::AllGather, buffer, |all| self.comm.communicator().block_of(all), |r| r)
    }

    /// Blocks of different lengths, `counts[rank]` elements of each rank. `counts` is the same on all ranks.
    pub fn all_gather_v<T: Element>(
        &self,
        input: &(impl DeviceInput<T> + ?Sized),
        output: &mut (impl DeviceOutput<T> + ?Sized),
        counts: &[usize],
    ) -> Result<DeviceWork> {
        let counts = Some(Counts { recv_counts: counts, ..Counts::default() });
        self.call(Collective::AllGather, (input, output), |_, _| Ok(0), |r| r, counts)
    }

    /// The reduction of all ranks' block `rank`. `input` holds `n` blocks as long as `output`.
    pub fn reduce_scatter<T: Element>(
        &self,
        input: &(impl DeviceInput<T> + ?Sized),
        output: &mut (impl DeviceOutput<T> + ?Sized),
        op: ReduceOp,
    ) -> Result<DeviceWork> {
        self.call(Collective::ReduceScatter, (input, output), |_, output| Ok(output), |r| r.op(op), None)
    }

    /// As [`OnStream::reduce_scatter`], with the result in this rank's block of `buffer`. The other blocks are lost.
    pub fn reduce_scatter_in_place<T: Element>(
        &self,
        buffer: &mut (impl DeviceOutput<T> + ?Sized),
        op: ReduceOp,
    ) -> Result<DeviceWork> {
        self.over(Collective::ReduceScatter, buffer, |all| self.comm.communicator().block_of(all), |r| r.op(op))
    }

    /// Blocks of different lengths: rank `r` gets the reduction of its `counts[r]` elements. `counts` is the same on all ranks.
    pub fn reduce_scatter_v<T: Element>(
        &self,
        input: &(impl DeviceInput<T> + ?Sized),
        output: &mut (impl DeviceOutput<T> + ?Sized),
        counts: &[usize],
        op: ReduceOp,
    ) -> Result<DeviceWork> {
        let counts = Some(Counts { send_counts: counts, ..Counts::default() });
        self.call(Collective::ReduceScatter, (input, output), |_, _| Ok(0), |r| r.op(op), counts)
    }

    /// Block `r` of `input` to rank `r`; block `r` of `output` from rank `r`.
    pub fn all_to_all<T: Element>(
        &self,
        input: &(impl DeviceInput<T> + ?Sized),
        output: &mut (impl DeviceOutput<T> + ?Sized),
    ) -> Result<DeviceWork> {
        let block = |all, _| self.comm.communicator().block_of(all);
        self.call(Collective::AllToAll, (input, output), block, |r| r, None)
    }

    /// Blocks of different lengths: `send_counts[r]` elements to rank `r`, `recv_counts[r]` from it, one behind the other.
    pub fn all_to_all_v<T: Element>(
        &self,
        input: &(impl DeviceInput<T> + ?Sized),
        send_counts: &[usize],
        output: &mut (impl DeviceOutput<T> + ?Sized),
        recv_counts: &[usize],
    ) -> Result<DeviceWork> {
        let counts = Some(Counts { send_counts, recv_counts, ..Counts::default() });
        self.call(Collective::AllToAll, (input, output), |_, _| Ok(0), |r| r, counts)
    }

    /// All ranks' `input`, one behind the other in rank order, on the root. Other ranks' `output` may be empty.
    pub fn gather<T: Element>(
        &self,
        input: &(impl DeviceInput<T> + ?Sized),
        output: &mut (impl DeviceOutput<T> + ?Sized),
        root: usize,
    ) -> Result<DeviceWork> {
        self.call(Collective::Gather, (input, output), |input, _| Ok(input), |r| r.root(root), None)
    }

    /// Block `rank` of the root's `input`. Other ranks' `input` may be empty.
    pub fn scatter<T: Element>(
        &self,
        input: &(impl DeviceInput<T> + ?Sized),
        output: &mut (impl DeviceOutput<T> + ?Sized),
        root: usize,
    ) -> Result<DeviceWork> {
        self.call(Collective::Scatter, (input, output), |_, output| Ok(output), |r| r.root(root), None)
    }

    /// What follows in the stream begins when all ranks' streams have got to their barrier.
    pub fn barrier(&self) -> Result<DeviceWork> {
        let nothing = DeviceBuffers::InPlace((0, 0));
        self.comm.enqueue(self.stream, Request::new(Collective::Barrier, crate::DataType::U8, 0, nothing))
    }

    /// A message to rank `to`.
    ///
    /// A short one may be on its way before it is received; a long one holds up the stream until it is. Ranks that send each
    /// other messages first and receive then need a [group](OnStream::group) or [`OnStream::send_recv`].
    pub fn send<T: Element>(&self, message: &(impl DeviceInput<T> + ?Sized), to: usize) -> Result<DeviceWork> {
        let message = message.lend(self.stream)?;
        let buffers = DeviceBuffers::Separate { input: (message.address, message.bytes), output: (0, 0) };
        let count = message.bytes / size_of::<T>();
        self.comm.enqueue(self.stream, Request::new(Collective::Send, T::DATA_TYPE, count, buffers).root(to))
    }

    /// The next message from rank `from`, which is as long as `message`.
    pub fn recv<T: Element>(&self, message: &mut (impl DeviceOutput<T> + ?Sized), from: usize) -> Result<DeviceWork> {
        let message = message.lend_mut(self.stream)?;
        let buffers = DeviceBuffers::Separate { input: (0, 0), output: (message.address, message.bytes) };
        let count = message.bytes / size_of::<T>();
        self.comm.enqueue(self.stream, Request::new(Collective::Recv, T::DATA_TYPE, count, buffers).root(from))
    }

    /// `input` to rank `to` and, at the same time, `output` from rank `from`.
    pub fn send_recv<T: Element>(
        &self,
        input: &(impl DeviceInput<T> + ?Sized),
        to: usize,
        output: &mut (impl DeviceOutput<T> + ?Sized),
        from: usize,
    ) -> Result<DeviceWork> {
        self.call(Collective::SendRecv, (input, output), |_, _| Ok(0), |r| r.root(to).source(from), None)
    }

    /// Messages that go together: whatever the order in which their ranks add them, none holds up another, but one between the
    /// same two ranks that was added before it.
    pub fn group(&self) -> DeviceGroup<'a> {
        DeviceGroup::new(*self)
    }

    pub(super) fn give(&self, requests: Vec<DeviceRequest<'_>>) -> Result<DeviceWork> {
        self.comm.enqueue_group(self.stream, requests)
    }

    pub(super) fn stream(&self) -> &'a Stream {
        self.stream
    }
}
