//! Completion queues, and the files that wake whoever sleeps on them.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ibverbs_sys as ffi;

use super::context::{Context, pointer};

/// One queue for all completions of some queue pairs, with a file of its own.
pub(crate) struct CompletionQueue {
    pub(super) context: Arc<Context>,
    pub(super) raw: *mut ffi::ibv_cq,
    channel: *mut ffi::ibv_comp_channel,
}

// SAFETY: as of `Context`; polling takes `&mut self`.
unsafe impl Send for CompletionQueue {}

/// What became of a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Completion {
    /// A peer's write has arrived and used up a receive request.
    Arrived { request: u64, immediate: u32, bytes: u32 },
    /// A signalled write, and all before it on its queue pair, have ended.
    Sent { request: u64 },
    /// A request has failed, with this status.
    Failed { request: u64, status: u32, vendor: u32 },
}

/// Completions taken at once.
const BATCH: usize = 16;

impl CompletionQueue {
    pub(crate) fn new(context: &Arc<Context>, entries: u32) -> io::Result<CompletionQueue> {
        let functions = context.functions;
        // SAFETY: the context is open and held; the channel is freed if the queue can't be made.
        unsafe {
            let channel = pointer((functions.create_comp_channel)(context.raw))?;
            let made = pointer((functions.create_cq)(context.raw, entries as i32, std::ptr::null_mut(), channel, 0));
            let raw = made.inspect_err(|_| {
                (functions.destroy_comp_channel)(channel);
            })?;
            let queue = CompletionQueue { context: context.clone(), raw, channel };
            rustix::io::ioctl_fionbio(queue.file(), true)?;
            Ok(queue)
        }
    }

    /// The file that becomes readable at the first completion after [`CompletionQueue::arm`].
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        // SAFETY: the file is open as long as the channel is.
        unsafe { BorrowedFd::borrow_raw((*self.channel).fd) }
    }

    /// Takes the completions that are there and gives them to `each`; how many there were.
    #[inline]
    pub(crate) fn poll(&mut self, mut each: impl FnMut(Completion)) -> usize {
        let mut taken = 0;
        loop {
            let mut batch = [const { std::mem::MaybeUninit::<ffi::ibv_wc>::uninit() }; BATCH];
            // SAFETY: the queue is valid, its device's table has this entry, and the batch has room for so many.
            let found = unsafe {
                let poll = (*(*self.raw).context).ops.poll_cq.unwrap_unchecked();
                poll(self.raw, BATCH as i32, batch.as_mut_ptr().cast())
            };
            let found = usize::try_from(found).unwrap_or(0);
            for work in &batch[..found] {
                // SAFETY: the device has filled so many.
                each(read(unsafe { work.assume_init_ref() }));
            }
            taken += found;
            if found < BATCH {
                return taken;
            }
        }
    }

    /// Forgets the wake-ups so far, and asks for one at the next completion.
    pub(crate) fn arm(&mut self) -> io::Result<()> {
        let functions = self.context.functions;
        // SAFETY: queue and channel are valid; each event that is taken is acknowledged.
        unsafe {
            let (mut queue, mut cookie) = (std::ptr::null_mut(), std::ptr::null_mut());
            let mut events = 0;
            while (functions.get_cq_event)(self.channel, &raw mut queue, &raw mut cookie) == 0 {
                events += 1;
            }
            if events > 0 {
                (functions.ack_cq_events)(self.raw, events);
            }
            let request = (*(*self.raw).context).ops.req_notify_cq.unwrap_unchecked();
            super::context::status(request(self.raw, 0))
        }
    }
}

#[inline]
fn read(work: &ffi::ibv_wc) -> Completion {
    let request = work.wr_id();
    match work.error() {
        Some((status, vendor)) => Completion::Failed { request, status, vendor },
        None if work.opcode() == ffi::ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM => {
            Completion::Arrived { request, immediate: u32::from_be(work.imm_data), bytes: work.len() as u32 }
        }
        None => Completion::Sent { request },
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        if !self.context.is_foreign() {
            // SAFETY: its queue pairs held it, and are freed; all events that were taken are acknowledged.
            unsafe {
                (self.context.functions.destroy_cq)(self.raw);
                (self.context.functions.destroy_comp_channel)(self.channel);
            }
        }
    }
}
