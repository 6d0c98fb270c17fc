//! An engine as its threads share it: the core behind a mutex, requests beside it, and the progress thread.

use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use paceline_transport::sim::RankStep;
use paceline_transport::{Endpoint, Waker, forks, run_promptly};

use super::active::Active;
use super::attention::{Attention, Stop};
use super::completion::Completion;
use super::core::{ASKS_EVERY, Core};
use super::handover::Signal;
use super::kin::{Doing, Kin, Relative};
use super::memory::Scratch;
use super::message::Message;
use super::quick::Quick;
use super::small::Small;
use crate::error::{Error, ErrorKind, Result};

/// How long the reason for what went wrong beside the engine is waited for.
const SHORTLY: Duration = Duration::from_millis(50);

/// One rank's engine.
pub(crate) struct Engine {
    inner: Arc<Inner>,
    driver: Driver,
    progress: Mutex<Option<JoinHandle<()>>>,
    process: u32,
    generation: u32,
    kin: Kin,
}

/// Who drives the calls of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Driver {
    /// Threads: the caller's, and the progress thread.
    Threads,
    /// Whoever calls [`Engine::step`].
    Steps,
}

struct Inner {
    core: Mutex<Core>,
    attention: Attention,
    signal: Signal,
    waker: Waker,
}

impl Engine {
    pub(crate) fn new(core: Core, driver: Driver) -> Engine {
        let waker = core.endpoint.waker();
        let attention = Attention::new();
        let kin = core.kin.clone();
        let inner = Arc::new(Inner { core: Mutex::new(core), attention, signal: Signal::new(), waker });
        let relative: Arc<dyn Relative> = inner.clone();
        kin.admit(Arc::downgrade(&relative));
        let (process, generation) = (std::process::id(), forks::generation());
        Engine { inner, driver, progress: Mutex::new(None), process, generation, kin }
    }

    /// An error in a forked child, which must not speak for its parent.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.generation == forks::generation() { Ok(()) } else { Err(self.forked()) }
    }

    #[cold]
    fn forked(&self) -> Error {
        let (parent, child) = (self.process, std::process::id());
        let cause =
            format!("the communicator belongs to process {parent}, and this is process {child}, forked from it");
        Error::invalid(cause).hint("use it in the process that made it, or fork before joining")
    }

    /// Runs calls to their end: in this thread if the engine is free, otherwise by whoever drives it.
    pub(crate) fn run(&self, mut calls: impl AsMut<[Active]> + IntoIterator<Item = Active>) -> Result<()> {
        self.check_process()?;
        if self.driver == Driver::Steps {
            return Err(Error::invalid("a rank of a simulated network can't wait in a call")
                .hint("start the call and step the rank"));
        }
        match self.inner.core.try_lock() {
            Ok(mut core) => core.drive_safely(&self.inner.attention, calls.as_mut()),
            Err(TryLockError::WouldBlock) => {
                let completions: Result<Vec<_>> = calls.into_iter().map(|active| self.submit(active)).collect();
                let ends = completions?.into_iter().map(|end| self.wait_for(&end));
                ends.fold(Ok(()), Result::and)
            }
            Err(TryLockError::Poisoned(_)) => Err(poisoned()),
        }
    }

    fn wait_for(&self, end: &Completion) -> Result<()> {
        if !self.kin.has_asks() {
            return end.wait(None).expect("waits without a deadline");
        }
        end.wait_looking(ASKS_EVERY, || self.kin.gives_up().into_iter().for_each(|error| self.fail(error)))
    }

    /// Runs a call over the boards in this thread, if nothing else is under way; otherwise nothing has happened.
    #[inline]
    pub(crate) fn run_quick<'a>(&self, call: impl FnOnce() -> Quick<'a>) -> Option<Result<()>> {
        let mut core = self.free_core()?;
        Some(core.safely(|core| core.run_quick(&self.inner.attention, call())))
    }

    /// Runs a message in this thread, if nothing else is under way; otherwise nothing has happened.
    #[inline]
    pub(crate) fn run_message<'a>(&self, message: impl FnOnce() -> Message<'a>) -> Option<Result<()>> {
        let mut core = self.free_core()?;
        Some(core.safely(|core| core.run_message(&self.inner.attention, message())))
    }

    /// Runs a small call over links in this thread, if nothing else is under way; otherwise nothing has happened.
    #[inline]
    pub(crate) fn run_small<'a>(&self, small: impl FnOnce(Scratch) -> Small<'a>) -> Option<Result<()>> {
        let mut core = self.free_core()?;
        let small = small(std::mem::take(&mut core.scratch));
        Some(core.safely(|core| core.run_small(&self.inner.attention, small)))
    }

    /// The core, if it may be used by this thread and nothing is under way.
    #[inline]
    fn free_core(&self) -> Option<MutexGuard<'_, Core>> {
        if self.driver == Driver::Steps || self.generation != forks::generation() {
            return None;
        }
        let core = self.inner.core.try_lock().ok()?;
        (core.is_idle() && !self.inner.attention.is_raised()).then_some(core)
    }

    /// As [`Engine::run_quick`], several calls one after the other.
    pub(crate) fn run_all_quick<'a>(&self, calls: impl Iterator<Item = Quick<'a>>) -> Option<Result<()>> {
        let mut core = self.free_core()?;
        Some(core.safely(|core| core.run_all_quick(&self.inner.attention, calls)))
    }

    /// Hands a call to the engine and returns at once.
    pub(crate) fn submit(&self, mut active: Active) -> Result<Arc<Completion>> {
        self.check_process()?;
        if self.driver == Driver::Threads {
            self.start_progress()?;
        }
        let completion = Completion::new();
        active.completion = Some(completion.clone());
        self.inner.attention.submit(active);
        self.inner.waker.wake();
        self.inner.signal.notify();
        Ok(completion)
    }

    /// Ends the communicator for what went wrong beside the engine, or for the reason that a peer has told meanwhile;
    /// which it was.
    pub(crate) fn fail_unless_known(&self, mut error: Error) -> Error {
        if let Ok(mut core) = self.inner.core.try_lock() {
            let peer = error.peers().first().copied().filter(|peer| *peer < core.endpoint.size());
            if let Some(peer) = peer
                && let Err(known) = core.hear_why(peer, SHORTLY, &[])
            {
                return known;
            }
            let mut blamed: Vec<usize> =
                error.peers().iter().copied().filter(|rank| *rank < core.endpoint.size()).collect();
            blamed.sort_unstable();
            match core.look_behind(&blamed, 3 * SHORTLY) {
                Err(known) => return known,
                Ok(silent) if !silent.is_empty() && silent != blamed => {
                    error = core.witness.shift_blame(&error, silent)
                }
                Ok(_) => {}
            }
        }
        self.fail(error.clone());
        error
    }

    /// Ends every call under way, and all later ones, with this error, and tells the peers. Waits for nobody.
    pub(crate) fn fail(&self, error: Error) {
        if self.check_process().is_err() {
            return;
        }
        self.inner.attention.stop(Stop::Fail(error));
        self.inner.waker.wake();
        if let Ok(mut core) = self.inner.core.try_lock() {
            // The error is what the caller has just said.
            let _ = core.attend(&self.inner.attention);
        }
        self.inner.signal.notify();
    }

    /// Looks at every call once; how they stand.
    pub(crate) fn step(&self) -> RankStep {
        let Ok(mut core) = self.inner.core.lock() else { return RankStep::Done };
        core.step(&self.inner.attention).unwrap_or_else(|error| {
            core.end_all(&error);
            RankStep::Done
        })
    }

    /// Takes in what other ranks have told, if nobody else does at present: which have left, or why nothing works any more.
    pub(crate) fn look(&self) -> Result<Vec<usize>> {
        let Ok(mut core) = self.inner.core.try_lock() else { return Ok(Vec::new()) };
        core.attend(&self.inner.attention)?;
        if core.is_idle() {
            core.look()?;
        }
        match &core.dead {
            Some(error) => Err(error.clone()),
            None => Ok(core.others().filter(|peer| core.witness.peers[*peer].left).collect()),
        }
    }

    /// Leaves in order and gives the links back, if another group of the same ranks may use them.
    pub(crate) fn retire(&mut self) -> Option<Endpoint> {
        if self.process != std::process::id() || self.driver == Driver::Steps {
            return None;
        }
        self.stop_progress();
        self.inner.core.try_lock().ok()?.retire()
    }

    fn stop_progress(&mut self) {
        if let Some(thread) = self.progress.get_mut().ok().and_then(Option::take) {
            self.inner.attention.stop(Stop::Drop);
            self.inner.waker.wake();
            self.inner.signal.close();
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                tracing::error!("the progress thread had panicked");
            }
        }
    }

    fn start_progress(&self) -> Result<()> {
        let mut progress = self.progress.lock().expect("no panic while held");
        if progress.is_some() {
            return Ok(());
        }
        let inner = self.inner.clone();
        let thread = std::thread::Builder::new().name("paceline-progress".into()).spawn(move || inner.progress());
        let thread = thread.map_err(|error| {
            Error::new(ErrorKind::System, format!("starting the progress thread failed: {error}"))
                .hint("raise the limit on threads (ulimit -u), or use blocking calls")
        })?;
        *progress = Some(thread);
        Ok(())
    }
}

impl Inner {
    fn progress(&self) {
        // Its work is short, and whoever computes beside it waits for the outcome sooner or later.
        run_promptly();
        let mut open = true;
        while open {
            // Once more after the end, so that no call that came late waits for ever.
            open = self.signal.wait();
            let Ok(mut core) = self.core.lock() else { return };
            let result = core.attend(&self.attention).and_then(|()| core.drive_safely(&self.attention, &mut []));
            if let Err(error) = result {
                core.end_all(&error);
            }
        }
    }
}

impl Relative for Inner {
    fn answer(&self, doing: &Doing) {
        if let Ok(mut core) = self.core.try_lock() {
            core.answer_beside(doing);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // A forked child has no progress thread, and its parent's calls are not its own.
        if self.process != std::process::id() {
            std::mem::forget(self.progress.get_mut().ok().and_then(Option::take));
            return;
        }
        if self.driver == Driver::Steps {
            self.inner.attention.stop(Stop::Drop);
            self.step();
        }
        self.stop_progress();
        if let Ok(mut core) = self.inner.core.try_lock() {
            core.take_leave();
        }
    }
}

fn poisoned() -> Error {
    Error::new(ErrorKind::Internal, "an earlier call panicked inside the engine").hint("please report the panic's text")
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::time::Instant;

    use paceline_transport::Clock;

    use super::super::Look;
    use super::super::{Beside, Channels, Extent, Memory, Naming, Operation, Plan, Slicing, Stamps, WaitPolicies};
    use super::*;
    use crate::algorithm::row;
    use crate::collective::Collective;
    use crate::engine::Fingerprint;
    use crate::error::CallName;
    use crate::reduce::{DataType, Kernel, ReduceOp};

    /// A copy of 400 bytes whose output has `bytes`.
    fn copy_into(bytes: usize, sequence: u64) -> Active {
        let row = row(Collective::AllReduce, "ring").unwrap();
        let kernel = Kernel::of(DataType::F32, ReduceOp::Sum);
        let slicing = Slicing { chunk_bytes: 1 << 20, lanes: 1 };
        let plan =
            Plan::new(Collective::AllReduce, row.name, row.program(0, 1, 0), kernel, 4, Extent::Vector(100), slicing);
        let (input, output) = (vec![1u8; 400].leak(), vec![0u8; 400].leak());
        // SAFETY: both are leaked, at least that long, and nobody else knows them.
        let memory = unsafe { Memory::new((input.as_ptr(), 400), (output.as_mut_ptr(), bytes), 0, None) };
        let collective = Collective::AllReduce;
        let (data_type, op, count) = (DataType::F32, 0, 100);
        let fingerprint = Fingerprint { collective, data_type, op, row: 0, root: 0, count, uneven: false };
        let stamps = Stamps::collective(fingerprint, None);
        let channels = Channels::Collective { sequence };
        let operation = Operation::new(Arc::new(plan), memory, channels, Naming::Whole, stamps, Beside::Nothing);
        let call = CallName { collective, sequence, algorithm: Cow::Borrowed("ring"), size: 1 };
        Active::new(operation, call, Duration::from_secs(5), None)
    }

    fn engine() -> Engine {
        let endpoint = paceline_transport::endpoint::in_process(1).unwrap().remove(0);
        Engine::new(Core::new(endpoint, Clock::Real, WaitPolicies::for_host(1, 1, Look::Memory)), Driver::Threads)
    }

    #[test]
    fn a_panic_in_a_blocking_call_is_an_error_and_the_end() {
        let engine = engine();
        engine.run([copy_into(400, 1)]).unwrap();
        let error = engine.run([copy_into(40, 2)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        let error = engine.run([copy_into(400, 3)]).unwrap_err();
        assert!(error.to_string().contains("has failed"), "{error}");
    }

    #[test]
    fn a_panic_in_a_started_call_ends_all_that_wait() {
        let engine = engine();
        let bad = engine.submit(copy_into(40, 1)).unwrap();
        let good = engine.submit(copy_into(400, 2)).unwrap();
        let limit = Some(Instant::now() + Duration::from_secs(10));
        assert_eq!(bad.wait(limit).unwrap().unwrap_err().kind(), ErrorKind::Internal);
        assert!(good.wait(limit).is_some(), "no call waits for ever");
    }
}
