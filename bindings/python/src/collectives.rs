//! The collectives as methods: each of a communicator, started, and of a group.

use paceline_comm::Collective;
use pyo3::prelude::*;

use crate::call::Ask;
use crate::communicator::Communicator;
use crate::group::Group;
use crate::work::Work;

type Any<'a, 'py> = &'a Bound<'py, PyAny>;
type Perhaps<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

/// For each collective its method, the method that starts it, Python's signature, and what is asked for.
macro_rules! collectives {
    ($(#[doc = $doc:literal] $call:ident, $start:ident, $signature:tt, ($($name:ident: $type:ty),*) => $ask:expr;)*) => {
        #[pymethods]
        impl Communicator {
            $(
                #[doc = $doc]
                #[pyo3(signature = $signature)]
                fn $call<'py>(&self, py: Python<'py>, $($name: $type),*) -> PyResult<Option<Py<PyAny>>> {
                    self.call(py, $ask)
                }

                #[doc = concat!("Starts ", stringify!($call), ".")]
                #[pyo3(signature = $signature)]
                fn $start<'py>(&self, py: Python<'py>, $($name: $type),*) -> PyResult<Work> {
                    self.start(py, $ask)
                }
            )*
        }

        #[pymethods]
        impl Group {
            $(
                #[doc = concat!("Adds ", stringify!($call), ".")]
                #[pyo3(signature = $signature)]
                fn $call<'py>(&self, py: Python<'py>, $($name: $type),*) -> PyResult<Option<Py<PyAny>>> {
                    self.add(py, $ask)
                }
            )*
        }
    };
}

collectives! {
    #[doc = "The reduction of all ranks' input, on every rank."]
    all_reduce, start_all_reduce, (input, op=None, *, out=None),
    (input: Any<'_, 'py>, op: Perhaps<'_, 'py>, out: Perhaps<'_, 'py>)
        => Ask::new(Collective::AllReduce).input(input).op(op).output(out);

    #[doc = "The reduction of all ranks' input, on the root."]
    reduce, start_reduce, (input, op=None, root=0, *, out=None),
    (input: Any<'_, 'py>, op: Perhaps<'_, 'py>, root: isize, out: Perhaps<'_, 'py>)
        => Ask::new(Collective::Reduce).input(input).op(op).root(root).output(out);

    #[doc = "The root's buffer, in every rank's buffer; or in every rank's out."]
    broadcast, start_broadcast, (input, root=0, *, out=None),
    (input: Perhaps<'_, 'py>, root: isize, out: Perhaps<'_, 'py>)
        => Ask::new(Collective::Broadcast).input(input).root(root).output(out);

    #[doc = "All ranks' input, one behind the other in rank order, on every rank."]
    all_gather, start_all_gather, (input, *, out=None),
    (input: Any<'_, 'py>, out: Perhaps<'_, 'py>)
        => Ask::new(Collective::AllGather).input(input).output(out);

    #[doc = "Blocks of different lengths, counts[rank] elements of each rank, one behind the other, on every rank."]
    all_gather_v, start_all_gather_v, (input, counts, *, out=None),
    (input: Any<'_, 'py>, counts: Vec<usize>, out: Perhaps<'_, 'py>)
        => Ask::new(Collective::AllGather).input(input).counts(Vec::new(), counts).output(out);

    #[doc = "The reduction of all ranks' block of this rank's number."]
    reduce_scatter, start_reduce_scatter, (input, op=None, *, out=None),
    (input: Any<'_, 'py>, op: Perhaps<'_, 'py>, out: Perhaps<'_, 'py>)
        => Ask::new(Collective::ReduceScatter).input(input).op(op).output(out);

    #[doc = "Blocks of different lengths: each rank gets the reduction of the counts[rank] elements of its block."]
    reduce_scatter_v, start_reduce_scatter_v, (input, counts, op=None, *, out=None),
    (input: Any<'_, 'py>, counts: Vec<usize>, op: Perhaps<'_, 'py>, out: Perhaps<'_, 'py>)
        => Ask::new(Collective::ReduceScatter).input(input).counts(counts, Vec::new()).op(op).output(out);

    #[doc = "Each block of the input to the rank of its number; the blocks of the result from all ranks."]
    all_to_all, start_all_to_all, (input, *, out=None),
    (input: Any<'_, 'py>, out: Perhaps<'_, 'py>)
        => Ask::new(Collective::AllToAll).input(input).output(out);

    #[doc = "Blocks of different lengths: send_counts[r] elements to rank r, recv_counts[r] from it."]
    all_to_all_v, start_all_to_all_v, (input, send_counts, recv_counts, *, out=None),
    (input: Any<'_, 'py>, send_counts: Vec<usize>, recv_counts: Vec<usize>, out: Perhaps<'_, 'py>)
        => Ask::new(Collective::AllToAll).input(input).counts(send_counts, recv_counts).output(out);

    #[doc = "All ranks' input, one behind the other in rank order, on the root."]
    gather, start_gather, (input, root=0, *, out=None),
    (input: Any<'_, 'py>, root: isize, out: Perhaps<'_, 'py>)
        => Ask::new(Collective::Gather).input(input).root(root).output(out);

    #[doc = "Blocks of different lengths, counts[rank] elements of each rank, on the root."]
    gather_v, start_gather_v, (input, counts, root=0, *, out=None),
    (input: Any<'_, 'py>, counts: Vec<usize>, root: isize, out: Perhaps<'_, 'py>)
        => Ask::new(Collective::Gather).input(input).counts(Vec::new(), counts).root(root).output(out);

    #[doc = "This rank's block of the root's input."]
    scatter, start_scatter, (input, root=0, *, out=None),
    (input: Perhaps<'_, 'py>, root: isize, out: Perhaps<'_, 'py>)
        => Ask::new(Collective::Scatter).input(input).root(root).output(out);

    #[doc = "Blocks of different lengths, counts[rank] elements of the root's input to each rank."]
    scatter_v, start_scatter_v, (input, counts, root=0, *, out=None),
    (input: Perhaps<'_, 'py>, counts: Vec<usize>, root: isize, out: Perhaps<'_, 'py>)
        => Ask::new(Collective::Scatter).input(input).counts(counts, Vec::new()).root(root).output(out);

    #[doc = "Returns when all ranks have called it."]
    barrier, start_barrier, (), () => Ask::new(Collective::Barrier);

    #[doc = "A message to rank `to`."]
    send, start_send, (message, to),
    (message: Any<'_, 'py>, to: isize)
        => Ask::new(Collective::Send).input(message).root(to);

    #[doc = "The next message from rank `source`, into `message`."]
    recv, start_recv, (message, source),
    (message: Any<'_, 'py>, source: isize)
        => Ask::new(Collective::Recv).output(message).root(source);

    #[doc = "A message to rank `to` and, at the same time, one from rank `source`."]
    send_recv, start_send_recv, (input, to, source, *, out=None),
    (input: Any<'_, 'py>, to: isize, source: isize, out: Perhaps<'_, 'py>)
        => Ask::new(Collective::SendRecv).input(input).root(to).source(source).output(out);
}
