//! The host's part of a call through the host: what it does while the stream waits.

use std::ops::Range;
use std::sync::Arc;

use super::order::PendingCall;
use super::staging::Block;
use super::work::Outcome;
use crate::Communicator;
use crate::collective::Collective;
use crate::communicator::WeakCommunicator;
use crate::error::{Error, ErrorKind, Result};
use crate::reduce::{DataType, ReduceOp};
use crate::request::{Buffers, Counts, Request};

/// The host's part of a call, which it may have to do again where a graph is replayed.
pub(super) struct Job {
    pub(super) comm: WeakCommunicator,
    /// Several are the messages of a group.
    pub(super) calls: Vec<Call>,
    pub(super) block: Arc<Block>,
    pub(super) outcome: Arc<Outcome>,
    /// Whether what becomes of the whole call is known when this is done.
    pub(super) is_last: bool,
}

/// A call over a block.
pub(super) struct Call {
    pub(super) collective: Collective,
    pub(super) data_type: DataType,
    pub(super) op: ReduceOp,
    pub(super) root: usize,
    pub(super) source: usize,
    pub(super) count: usize,
    pub(super) counts: Option<[Box<[usize]>; 4]>,
    pub(super) layout: Layout,
}

/// Where a call's buffers are in its block.
pub(super) enum Layout {
    Separate(Range<usize>, Range<usize>),
    InPlace(Range<usize>),
}

/// A job that a stream has got to.
pub(super) struct Due {
    pub(super) job: Arc<Job>,
    /// Its communicator, and that the call isn't over, until it is. A graph keeps neither.
    pub(super) pending: Option<(Communicator, PendingCall)>,
}

impl Call {
    /// The call, over its parts of the block.
    ///
    /// # Safety
    ///
    /// The stream has filled the block and waits for its word.
    unsafe fn request<'a>(&'a self, block: &'a Block) -> Request<'a> {
        // SAFETY: as the caller says; the parts are apart.
        let buffers = unsafe {
            match &self.layout {
                Layout::Separate(input, output) => {
                    Buffers::Separate { input: block.part(input.clone()), output: block.part(output.clone()) }
                }
                Layout::InPlace(buffer) => Buffers::InPlace(block.part(buffer.clone())),
            }
        };
        let counts = self.counts.as_ref().map(|[send_counts, send_offsets, recv_counts, recv_offsets]| Counts {
            send_counts,
            send_offsets,
            recv_counts,
            recv_offsets,
        });
        let request = Request::new(self.collective, self.data_type, self.count, buffers);
        Request { counts, ..request.op(self.op).root(self.root).source(self.source) }
    }
}

impl Job {
    /// Runs the call between the ranks, over the block. The stream waits meanwhile.
    pub(super) fn run(&self) -> Result<()> {
        let comm = self.comm.upgrade().ok_or_else(dropped)?;
        // SAFETY: the stream has filled the block and waits for its word.
        let request = |call| unsafe { Call::request(call, &self.block) };
        if let [call] = &self.calls[..] {
            return comm.run_now(request(call));
        }
        let mut group = comm.group();
        for call in &self.calls {
            group.add(request(call));
        }
        group.run_now()
    }

    /// Notes what came of it, and lets the stream go on.
    pub(super) fn end(&self, result: Result<()>) {
        if self.is_last || result.is_err() {
            // What is replayed keeps the first outcome.
            let _ = self.outcome.set(result);
        }
        self.release();
    }

    /// Lets the stream go on.
    pub(super) fn release(&self) {
        self.block.is_done();
    }
}

fn dropped() -> Error {
    Error::new(ErrorKind::Aborted, "a graph was launched with a call of a communicator that was dropped")
}
