//! Calls that run on the devices: launches of kernels over boards that all ranks reach.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use paceline_transport::cuda::{Device, DeviceMemory, HostMemory, PeerMemory, Shape, Stream};

use super::buffer::DeviceBuffers;
use super::kernels::Kernels;
use super::refused;
use super::register::Windows;
use super::streamed::{FROM_REGISTERED, Shared};
use crate::device::{
    Board, Call, Data, Failure, Grid, Kernel, Lending, LentPlan, MailPlan, Message, MessageKind, PeerArguments, Plan,
    Reason, Site, Tuning, Waiting,
};
use crate::error::{Error, ErrorKind, Result};
use crate::request::{Request, Sound};

/// Words of the status record, of four bytes, in front of the abort word.
const STATUS_WORDS: usize = 2 * Failure::WORDS;
/// How many launches are remembered by their digests.
const REMEMBERED: usize = 64;

/// This rank's board, before others have been told of it.
pub(super) struct Own {
    pub(super) memory: Arc<DeviceMemory>,
    pub(super) board: Board,
    control: HostMemory,
    pub(super) kernels: Kernels,
}

impl Own {
    pub(super) fn new(device: &Device, scratch: u64) -> Result<Own> {
        let board = Board::new(scratch, Board::BLOCKS_MAX)?;
        let memory = Arc::new(device.allocate(board.bytes() as usize).map_err(refused)?);
        let control = device.pinned(4 * (STATUS_WORDS + 1)).map_err(refused)?;
        Ok(Own { memory, board, control, kernels: Kernels::of(device)? })
    }
}

/// The boards of all ranks, and what launches over them need.
pub(super) struct Direct {
    rank: usize,
    pub(super) own: Own,
    pub(super) addresses: Vec<u64>,
    /// Every rank's board but this one's, held.
    peers: Mutex<Vec<PeerMemory>>,
    pub(super) windows: Mutex<Windows>,
    pub(super) shared: Shared,
    pub(super) tuning: Tuning,
    /// Launches by the digest that was expected of each peer.
    launches: Mutex<VecDeque<(Vec<u32>, String)>>,
}

impl Direct {
    /// `peers` has every rank's board but this one's; a launch has `blocks` blocks at most.
    pub(super) fn new(rank: usize, own: Own, peers: Vec<Option<PeerMemory>>, blocks: u32) -> Direct {
        let address = |peer: &Option<PeerMemory>| peer.as_ref().map_or(own.memory.address(), PeerMemory::address);
        let addresses = peers.iter().map(address).collect();
        let tuning = Tuning { blocks, ..Tuning::default() };
        let peers = Mutex::new(peers.into_iter().flatten().collect());
        let (windows, shared, launches) = (Mutex::default(), Shared::default(), Mutex::default());
        Direct { rank, own, addresses, peers, windows, shared, tuning, launches }
    }

    /// Puts the launch of a call into a stream.
    pub(super) fn launch(
        &self,
        stream: &Stream,
        request: &Request<'_, DeviceBuffers>,
        sound: &Sound,
        limit: Duration,
    ) -> Result<()> {
        let Request { collective, data_type, op, root, count, counts, .. } = *request;
        let call = Call { collective, data_type, op, root, count, counts };
        let data = Data { input: sound.input.0.addr() as u64, output: sound.output.0.addr() as u64 };
        let name = || match collective.reduces() {
            true => format!("{collective} of {count} {data_type} ({op})"),
            false => format!("{collective} of {count} {data_type}"),
        };
        let windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if !windows.is_empty() && LentPlan::takes(&call, self.addresses.len(), LentPlan::BYTES_MIN) {
            let lending = Lending { windows: &windows.places };
            let plan = LentPlan::new(&call, data, &lending, &self.site(limit), &self.tuning)?;
            self.remember(plan.given(), name);
            // SAFETY: the arguments are the kernel's, plain numbers without padding; the caller's buffers are there until the
            // stream has done the call, and what other ranks have lent until all have deregistered it.
            return unsafe { self.start(stream, plan.kernel, plan.grid, &plan.arguments) };
        }
        let Plan { kernel, grid, arguments } = Plan::new(&call, data, &self.site(limit), &self.tuning)?;
        self.remember(&arguments, name);
        // SAFETY: as above.
        unsafe { self.start(stream, kernel, grid, &arguments) }
    }

    /// Puts the launch of messages into a stream.
    pub(super) fn launch_mail(
        &self,
        stream: &Stream,
        messages: &[Message],
        (kind, in_place): (MessageKind, bool),
        limit: Duration,
    ) -> Result<()> {
        let MailPlan { grid, arguments } = MailPlan::new(messages, kind, in_place, &self.site(limit), &self.tuning)?;
        // SAFETY: as above.
        unsafe { self.start(stream, MailPlan::KERNEL, grid, &arguments) }
    }

    pub(super) fn site(&self, limit: Duration) -> Site<'_> {
        Site {
            rank: self.rank,
            board: self.own.board,
            boards: &self.addresses,
            status: self.own.control.device_address(),
            abort: self.own.control.device_address() + 4 * STATUS_WORDS as u64,
            limit,
        }
    }

    /// # Safety
    ///
    /// `A` is the kernel's argument, of plain numbers without padding between them, and what it names of the caller's lives until
    /// the stream has done the launch.
    pub(super) unsafe fn start<A>(&self, stream: &Stream, kernel: Kernel, grid: Grid, arguments: &A) -> Result<()> {
        let function = self.own.kernels.get(kernel)?;
        let shape = Shape { blocks: grid.blocks, threads: grid.threads, shared_bytes: 0 };
        // SAFETY: plain numbers, as the caller says.
        let argument = unsafe { std::slice::from_raw_parts((&raw const *arguments).cast::<u8>(), size_of::<A>()) };
        // SAFETY: the argument is the kernel's; boards, status and abort word live as long as this, and the caller's buffers
        // until the stream has done the call.
        unsafe { stream.launch(&function, shape, argument) }.map_err(refused)
    }

    pub(super) fn remember(&self, arguments: &PeerArguments, name: impl FnOnce() -> String) {
        let digests = arguments.digests().to_vec();
        let mut launches = self.launches.lock().unwrap_or_else(PoisonError::into_inner);
        if launches.back().is_some_and(|(last, _)| *last == digests) {
            return;
        }
        if launches.len() == REMEMBERED {
            launches.pop_front();
        }
        launches.push_back((digests, name()));
    }

    /// Ends every launch that waits, and all later ones.
    pub(super) fn abort(&self) {
        self.own.control.word(STATUS_WORDS).store(1, Ordering::Release);
    }

    /// What the first launch that failed says.
    pub(super) fn failure(&self) -> Option<Error> {
        let control = &self.own.control;
        let low = control.word(2 * Failure::VERDICT).load(Ordering::Acquire);
        if low == 0 {
            return None;
        }
        let word = |index: usize| u64::from(control.word(index).load(Ordering::Relaxed));
        let failure = Failure::read(std::array::from_fn(|index| word(2 * index) | word(2 * index + 1) << 32))?;
        let launches = self.launches.lock().unwrap_or_else(PoisonError::into_inner);
        let named = launches.iter().rev().find(|(digests, _)| digests.get(failure.peer) == Some(&failure.digests.0));
        let name = match failure.waiting {
            Waiting::Collective | Waiting::Put(_) | Waiting::Taken(_) => {
                named.map_or("a launch of a graph", |(_, name)| name.as_str())
            }
            Waiting::Sending | Waiting::Receiving(_) => "messages",
        };
        let (kind, hint) = match failure.reason {
            Reason::Aborted => (ErrorKind::Aborted, None),
            Reason::TimedOut => {
                (ErrorKind::Timeout, Some("look at what that rank does, or whether it calls with memory of the host"))
            }
            Reason::Mismatch if name.contains(FROM_REGISTERED) => (
                ErrorKind::Mismatch,
                Some("bring buffers at the same place of the same registered vectors on all ranks"),
            ),
            Reason::Mismatch => (ErrorKind::Mismatch, Some("make the same call on all ranks, in the same order")),
            Reason::OtherLength(_) => {
                (ErrorKind::Mismatch, Some("receive messages with their length, in the order sent"))
            }
        };
        let error = Error::new(kind, format!("on the device, {name}: {failure}")).blaming([failure.peer]);
        Some(hint.map_or(error.clone(), |hint| error.hint(hint)))
    }

    /// Gives up what is other ranks'; there are no launches any more. This rank's own board, and what it had registered, which
    /// is returned, may be dropped when all have done so.
    pub(super) fn part(&self) -> Vec<Arc<DeviceMemory>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.windows.lock().unwrap_or_else(PoisonError::into_inner).part()
    }

    /// Leaves this rank's board allocated for ever: others may have mapped it.
    pub(super) fn leave(&self) {
        tracing::debug!("{:?} stay allocated: detach() frees them", self.own.memory);
        std::mem::forget(self.own.memory.clone());
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        // Freeing memory that another process has mapped is undefined, and nobody says when none has any more.
        let peers = self.peers.get_mut().unwrap_or_else(PoisonError::into_inner);
        if peers.iter().any(|peer| !peer.is_same_process()) {
            self.leave();
        }
        let windows = self.windows.get_mut().unwrap_or_else(PoisonError::into_inner);
        windows.mapped().for_each(|own| std::mem::forget(own.clone()));
    }
}
