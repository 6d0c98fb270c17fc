//! One port's part in a link: its queue pairs to the peer, and the keys to both ends' slots.

use std::sync::Arc;

use super::adapter::Adapter;
use super::errors::RdmaError;
use super::immediate::Immediate;
use super::registration;
use super::slab::Slab;
use super::verbs::{Access, Attributes, Completion, CompletionQueue, Piece, QueuePair, Registration, Write};

/// How a write is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// The bytes are copied into the request.
    Inline,
    /// From memory; its end is reported some time, with others.
    Quiet,
    /// From memory; its end is reported.
    Reported,
}

/// A port's part in a link.
pub(super) struct Rail {
    pub(super) adapter: Arc<Adapter>,
    /// The port's place among those of the rank.
    pub(super) port: usize,
    pub(super) queues: Vec<Queue>,
    pub(super) completions: CompletionQueue,
    /// The slots, as this port's device knows them.
    pub(super) slots: Registration,
    /// The peer's slots: where they are, and the key to them.
    pub(super) theirs: (u64, u32),
    /// Whether each end can read the other's memory.
    pub(super) reads: bool,
    /// From which address to which, for messages.
    pub(super) path: String,
    /// Bytes per packet, as verbs number them.
    pub(super) mtu: u8,
}

/// A queue pair and its accounts.
pub(super) struct Queue {
    pub(super) pair: QueuePair,
    /// Writes and reads posted, and those of them that are known to have ended.
    posted: u64,
    ended: u64,
    /// The last of them that will be reported.
    signalled: u64,
    /// Receive requests used up and not posted again.
    receives_due: usize,
}

/// Writes and reads that a queue pair may have under way beside one for each slot.
const SENDS_BESIDE: u32 = 32;
/// Receive requests beside one for each slot: for credits, trial writes and goodbyes.
pub(super) const RECEIVES_BESIDE: u32 = 32;
/// One of so many writes is reported.
const SIGNAL_EVERY: u64 = 16;
/// Receive requests are posted so many at a time.
const RECEIVES_AT_ONCE: usize = 8;
/// Bytes that a write should carry in itself.
const INLINE_BYTES: u32 = 220;

/// A place for a queue's number in a request's.
const QUEUE_SHIFT: u32 = 48;

impl Rail {
    /// Queue pairs on a port, ready to be connected, with receive requests posted.
    pub(super) fn new(
        (port, adapter): (usize, &Arc<Adapter>),
        slab: &Slab,
        pairs: usize,
        pkey_index: u16,
    ) -> Result<Rail, RdmaError> {
        let device = adapter.device();
        let slots = slab.geometry().slots;
        let sends = (slots + SENDS_BESIDE).min(adapter.limits.requests);
        let receives = (slots + RECEIVES_BESIDE).min(adapter.limits.requests);
        let refused = |what, bytes| move |error| RdmaError::of_memory(device, what, bytes, &error);
        let entries = (sends + receives) * pairs as u32;
        let completions = CompletionQueue::new(&adapter.context, entries);
        let completions = completions.map_err(refused("making a completion queue", 64 * entries as usize))?;
        // SAFETY: the link keeps the slab until all registrations are gone (`Rail` before `Slab` in `RdmaLink`); what is
        // written there is read after its completion only.
        let slots = unsafe {
            let memory = (slab.start(), slab.bytes());
            registration::register(adapter, memory, Access::WrittenByPeers, "registering a link's slots")?
        };
        let number = adapter.candidate.facts.port;
        let wanted = Attributes { port: number, pkey_index, sends, receives, inline_bytes: INLINE_BYTES };
        let queue = |number: usize| {
            let pair = QueuePair::new(&adapter.domain, &completions, wanted);
            let mut pair = pair.map_err(refused("making a queue pair", 256 * (sends + receives) as usize))?;
            let posted = pair.post_receives(receives as usize, (number as u64) << QUEUE_SHIFT);
            posted.map_err(refused("posting receive requests", 0))?;
            Ok(Queue { pair, posted: 0, ended: 0, signalled: 0, receives_due: 0 })
        };
        let queues = (0..pairs).map(queue).collect::<Result<Vec<_>, RdmaError>>()?;
        Ok(Rail {
            adapter: adapter.clone(),
            port,
            queues,
            completions,
            slots,
            theirs: (0, 0),
            reads: false,
            path: String::new(),
            mtu: adapter.mtu,
        })
    }

    /// Bytes that a write can carry in itself.
    pub(super) fn inline_bytes(&self) -> usize {
        self.queues.iter().map(|queue| queue.pair.inline_bytes()).min().unwrap_or(0)
    }

    /// Writes to the peer's slots, `offset` bytes from their beginning, and tells the peer of it; the number of the request. The
    /// queue must have room.
    ///
    /// # Safety
    ///
    /// As [`QueuePair::post_write`].
    #[inline]
    pub(super) unsafe fn write(
        &mut self,
        queue: usize,
        offset: usize,
        immediate: Immediate,
        mode: Mode,
        pieces: &[Piece],
    ) -> Result<u64, RdmaError> {
        let (address, key) = (self.theirs.0 + offset as u64, self.theirs.1);
        let place = &mut self.queues[queue];
        let request = place.posted + 1;
        let reported = mode == Mode::Reported || request - place.signalled >= SIGNAL_EVERY;
        let signal = reported.then_some((queue as u64) << QUEUE_SHIFT | request);
        let write = Write { address, key, immediate: immediate.encode(), signal, inline: mode == Mode::Inline };
        // SAFETY: the caller vouches for the pieces.
        let posted = unsafe { place.pair.post_write(&write, pieces) };
        posted.map_err(|error| self.refused("posting a write", &error))?;
        self.has_posted(queue, request, reported);
        Ok(request)
    }

    /// Reads from an address of the peer's, under a key, into registered memory; the number of the request. The queue must
    /// have room.
    ///
    /// # Safety
    ///
    /// As [`QueuePair::post_read`].
    pub(super) unsafe fn fetch(
        &mut self,
        queue: usize,
        (address, key): (u64, u32),
        piece: Piece,
    ) -> Result<u64, RdmaError> {
        let place = &mut self.queues[queue];
        let request = place.posted + 1;
        // SAFETY: the caller vouches for the piece.
        let posted = unsafe { place.pair.post_read(address, key, (queue as u64) << QUEUE_SHIFT | request, piece) };
        posted.map_err(|error| self.refused("posting a read", &error))?;
        self.has_posted(queue, request, true);
        Ok(request)
    }

    #[inline]
    fn has_posted(&mut self, queue: usize, request: u64, reported: bool) {
        let place = &mut self.queues[queue];
        place.posted = request;
        if reported {
            place.signalled = request;
        }
    }

    pub(super) fn refused(&self, what: &'static str, error: &std::io::Error) -> RdmaError {
        RdmaError::Refused { device: self.adapter.name(), what, error: error.to_string() }
    }

    /// Whether a request, and all before it on its queue, are known to have ended.
    #[inline]
    pub(super) fn has_ended(&self, queue: usize, request: u64) -> bool {
        request <= self.queues[queue].ended
    }

    /// Whether a queue has room for two more requests.
    #[inline]
    pub(super) fn has_room(&self, queue: usize, slots: u32) -> bool {
        let most = u64::from((slots + SENDS_BESIDE).min(self.adapter.limits.requests));
        self.queues[queue].posted - self.queues[queue].ended + 2 <= most
    }

    /// Takes completions: gives to `arrived` the immediates and lengths of the peer's writes, and keeps the accounts of this
    /// end's; how many there were.
    #[inline]
    pub(super) fn poll(&mut self, mut arrived: impl FnMut(u32, u32)) -> Result<usize, Failure> {
        let (queues, mut failure) = (&mut self.queues, None);
        let taken = self.completions.poll(|completion| match completion {
            Completion::Arrived { request, immediate, bytes } => {
                let queue = &mut queues[(request >> QUEUE_SHIFT) as usize];
                queue.receives_due += 1;
                arrived(immediate, bytes);
            }
            Completion::Sent { request } => {
                let queue = &mut queues[(request >> QUEUE_SHIFT) as usize];
                queue.ended = queue.ended.max(request & ((1 << QUEUE_SHIFT) - 1));
            }
            Completion::Failed { status, vendor, .. } => failure = failure.or(Some(Failure { status, vendor })),
        });
        failure.map_or(Ok(taken), Err)
    }

    /// Posts the receive requests again that were used up, if they are many.
    #[inline]
    pub(super) fn refill(&mut self) -> Result<(), RdmaError> {
        for number in 0..self.queues.len() {
            let queue = &mut self.queues[number];
            if queue.receives_due >= RECEIVES_AT_ONCE {
                let posted = queue.pair.post_receives(queue.receives_due, (number as u64) << QUEUE_SHIFT);
                queue.receives_due = 0;
                posted.map_err(|error| self.refused("posting receive requests", &error))?;
            }
        }
        Ok(())
    }

    /// Whether all that was posted has ended, as far as it is reported.
    pub(super) fn is_quiet(&self) -> bool {
        self.queues.iter().all(|queue| queue.ended >= queue.signalled)
    }
}

/// A request that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Failure {
    pub(super) status: u32,
    pub(super) vendor: u32,
}
