//! Events: what a stream had to do when they were last recorded. Those of several processes lie in shared memory.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::capture::Capture;
use crate::context::Context;
use crate::driver::Driver;
use crate::error::{Code, Status};
use crate::handle::lock;
use crate::mapping::{Mapping, PAGE};
use crate::operation::Operation;
use crate::point::Point;
use crate::stream::{Stream, are_reached, wait_for};
use crate::value::poll;

/// Flags of `cuEventCreate`.
pub const DISABLE_TIMING: u32 = 2;
pub const INTERPROCESS: u32 = 4;

/// One event.
pub struct Event {
    pub context: Arc<Context>,
    pub flags: u32,
    state: Mutex<State>,
    /// Where other processes see it.
    pub shared: Option<Arc<Shared>>,
}

/// What the latest record was.
#[derive(Clone, Default)]
enum State {
    #[default]
    Never,
    Recorded(Arc<Point>),
    /// In a capture, after these of its nodes.
    Captured(Arc<Capture>, Vec<usize>),
}

/// The records of an event that several processes have: a page of its own.
pub struct Shared {
    pub file: OwnedFd,
    pub nonce: u64,
    mapping: Mapping,
}

/// How many records may be on their way at once.
const SLOTS: usize = 256;

impl Shared {
    pub fn new(file: OwnedFd, nonce: u64) -> rustix::io::Result<Shared> {
        let mapping = Mapping::new(Some(file.as_fd()), PAGE)?;
        Ok(Shared { file, nonce, mapping })
    }

    /// The number of records, and for each slot the latest record in it that was reached.
    fn numbers(&self) -> &[AtomicU64; 1 + SLOTS] {
        const { assert!(size_of::<[AtomicU64; 1 + SLOTS]>() <= PAGE) };
        // SAFETY: the page lives as long as `self`, and all processes use atomics in it.
        unsafe { &*(self.mapping.address() as *const [AtomicU64; 1 + SLOTS]) }
    }

    /// A new record. Returns its number.
    fn record(&self) -> u64 {
        self.numbers()[0].fetch_add(1, Ordering::AcqRel) + 1
    }

    fn latest(&self) -> u64 {
        self.numbers()[0].load(Ordering::Acquire)
    }

    fn slot(&self, generation: u64) -> &AtomicU64 {
        &self.numbers()[1 + generation as usize % SLOTS]
    }

    /// Record `generation` is reached.
    pub fn complete(&self, generation: u64) {
        self.slot(generation).fetch_max(generation, Ordering::AcqRel);
    }

    fn is_complete(&self, generation: u64) -> bool {
        generation == 0 || self.slot(generation).load(Ordering::Acquire) >= generation
    }

    /// Waits until record `generation` is reached, or the context is over.
    pub fn wait(&self, generation: u64, context: &Context) {
        poll(context, || self.is_complete(generation));
    }
}

impl Event {
    pub fn new(context: Arc<Context>, flags: u32, shared: Option<Arc<Shared>>) -> Event {
        Event { context, flags, state: Mutex::default(), shared }
    }

    /// Records it in a stream, which may be capturing.
    pub fn record(&self, driver: &'static Driver, stream: &Arc<Stream>) -> Status {
        if stream.context.device != self.context.device {
            return Err(Code::CUDA_ERROR_INVALID_HANDLE);
        }
        if let Some((capture, tail)) = crate::capture::tail(stream)? {
            *lock(&self.state) = State::Captured(capture, tail);
            return Ok(());
        }
        let operation = match &self.shared {
            Some(shared) => Operation::Announce(shared.clone(), shared.record()),
            None => Operation::Record,
        };
        *lock(&self.state) = State::Recorded(stream.enqueue(driver, operation));
        Ok(())
    }

    /// Makes a stream wait for the latest record.
    pub fn wait(&self, driver: &'static Driver, stream: &Arc<Stream>) -> Status {
        let state = lock(&self.state).clone();
        match state {
            State::Captured(capture, nodes) => capture.join(driver, stream, &nodes),
            State::Recorded(_) | State::Never if crate::capture::tail(stream)?.is_some() => {
                // What came before the capture is no part of it.
                Err(crate::capture::spoil(stream, Code::CUDA_ERROR_STREAM_CAPTURE_ISOLATION))
            }
            State::Recorded(_) | State::Never if self.shared.is_some() => {
                let shared = self.shared.as_ref().expect("it is");
                if let State::Recorded(point) = state {
                    stream.enqueue(driver, Operation::Await(point));
                }
                stream.enqueue(driver, Operation::AwaitShared(shared.clone(), shared.latest()));
                Ok(())
            }
            State::Recorded(point) => {
                stream.enqueue(driver, Operation::Await(point));
                Ok(())
            }
            State::Never => Ok(()),
        }
    }

    /// The latest record's end, if it is of this process.
    fn point(&self) -> Status<Option<Arc<Point>>> {
        match &*lock(&self.state) {
            State::Never => Ok(None),
            State::Recorded(point) => Ok(Some(point.clone())),
            State::Captured(capture, _) => {
                capture.invalidate();
                Err(Code::CUDA_ERROR_CAPTURED_EVENT)
            }
        }
    }

    /// Whether the latest record is reached.
    pub fn query(&self, driver: &Driver) -> Status<bool> {
        if let Some(point) = self.point()?
            && !are_reached(driver, &[point])
        {
            return Ok(false);
        }
        let is_complete = self.shared.as_ref().is_none_or(|shared| shared.is_complete(shared.latest()));
        if self.shared.is_some() && is_complete {
            self.learn_of_others(driver);
        }
        Ok(is_complete)
    }

    /// Waits until the latest record is reached.
    pub fn synchronise(&self, driver: &Driver) -> Status {
        if let Some(point) = self.point()? {
            wait_for(driver, &[point]);
        }
        if let Some(shared) = &self.shared {
            shared.wait(shared.latest(), &self.context);
            self.learn_of_others(driver);
        }
        self.context.check()
    }

    /// Another process's record may come after whatever it was shown.
    fn learn_of_others(&self, driver: &Driver) {
        let outward = lock(&driver.order.outward).clone();
        lock(&driver.order.host).join(&outward);
    }

    /// The time from this one's record to a later one's, in milliseconds.
    pub fn until(&self, later: &Event) -> Status<f32> {
        if (self.flags | later.flags) & DISABLE_TIMING != 0 {
            return Err(Code::CUDA_ERROR_INVALID_HANDLE);
        }
        let (Some(start), Some(end)) = (self.point()?, later.point()?) else {
            return Err(Code::CUDA_ERROR_INVALID_HANDLE);
        };
        let (Some(start), Some(end)) = (start.reached(), end.reached()) else {
            return Err(Code::CUDA_ERROR_NOT_READY);
        };
        let seconds = match end.at.checked_duration_since(start.at) {
            Some(time) => time.as_secs_f32(),
            None => -start.at.duration_since(end.at).as_secs_f32(),
        };
        Ok(seconds * 1e3)
    }
}
