//! Contexts: what a device is used through. An error of a kernel stays in its context: every later call returns it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::ThreadId;

use crate::driver::{Driver, driver};
use crate::error::{Code, Status, described, say};
use crate::handle::lock;
use crate::stream::{Kind, Stream};

/// One context of one device.
pub struct Context {
    pub handle: usize,
    pub device: usize,
    /// How often a primary context was retained.
    pub retained: AtomicUsize,
    /// The error that ended it; 0 while there is none.
    failed: AtomicU32,
    code: Mutex<Option<Code>>,
    destroyed: AtomicBool,
    legacy: OnceLock<Arc<Stream>>,
    per_thread: Mutex<HashMap<ThreadId, Arc<Stream>>>,
    /// All that weren't dropped.
    streams: Mutex<Vec<Weak<Stream>>>,
    /// The devices that its kernels may access beside its own.
    pub peers: Mutex<BTreeSet<usize>>,
}

/// The stream handles that mean the context's own streams.
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

thread_local! {
    static STACK: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

impl Context {
    pub fn new(handle: usize, device: usize) -> Context {
        Context {
            handle,
            device,
            retained: AtomicUsize::new(0),
            failed: AtomicU32::new(0),
            code: Mutex::new(None),
            destroyed: AtomicBool::new(false),
            legacy: OnceLock::new(),
            per_thread: Mutex::default(),
            streams: Mutex::default(),
            peers: Mutex::default(),
        }
    }

    /// Whether it can be used.
    ///
    /// # Errors
    ///
    /// The error that ended it, or `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
    pub fn check(&self) -> Status {
        if self.failed.load(Ordering::Acquire) != 0 {
            return Err(lock(&self.code).expect("it is written first"));
        }
        if self.destroyed.load(Ordering::Acquire) {
            return Err(Code::CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
        Ok(())
    }

    /// Ends it: nothing runs in it any more, and all calls return `code`.
    pub fn fail(&self, code: Code) {
        let mut first = lock(&self.code);
        if first.is_none() {
            *first = Some(code);
            self.failed.store(code as u32, Ordering::Release);
            let name = described(code as u32).map_or_else(Default::default, |(name, _)| name.to_string_lossy());
            say(format_args!("{name}: the context of device {} is of no more use", self.device));
        }
    }

    /// Takes it down: what waits in its streams ends.
    pub fn destroy(&self) {
        self.destroyed.store(true, Ordering::Release);
    }

    /// Whether streams must stop waiting.
    pub fn is_over(&self) -> bool {
        self.check().is_err()
    }

    /// All its streams.
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        let mut streams = lock(&self.streams);
        streams.retain(|stream| stream.strong_count() > 0);
        streams.iter().filter_map(Weak::upgrade).collect()
    }

    pub fn adopt(&self, stream: &Arc<Stream>) {
        lock(&self.streams).push(Arc::downgrade(stream));
    }

    /// The legacy default stream.
    pub fn legacy(self: &Arc<Context>, driver: &Driver) -> Arc<Stream> {
        let made = || driver.streams.insert(|handle| Stream::new(handle, self.clone(), Kind::Legacy, 0));
        let stream = self.legacy.get_or_init(|| {
            let stream = made();
            self.adopt(&stream);
            stream
        });
        stream.clone()
    }

    fn per_thread(self: &Arc<Context>, driver: &Driver) -> Arc<Stream> {
        let mut streams = lock(&self.per_thread);
        let made = || {
            let stream = driver.streams.insert(|handle| Stream::new(handle, self.clone(), Kind::Blocking, 0));
            self.adopt(&stream);
            stream
        };
        streams.entry(std::thread::current().id()).or_insert_with(made).clone()
    }
}

/// The calling thread's context, if it has one that can be used.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_CONTEXT`, or the error that ended it; `CUDA_ERROR_NOT_PERMITTED` in a host function.
pub fn current() -> Status<(&'static Driver, Arc<Context>)> {
    let driver = driver()?;
    if IN_HOST_FUNCTION.get() {
        say(format_args!("a host function calls the driver, which it may not"));
        return Err(Code::CUDA_ERROR_NOT_PERMITTED);
    }
    let handle = top().ok_or(Code::CUDA_ERROR_INVALID_CONTEXT)?;
    let context = driver.contexts.get(handle).map_err(|_| Code::CUDA_ERROR_CONTEXT_IS_DESTROYED)?;
    context.check()?;
    Ok((driver, context))
}

/// The stream with this handle, which may be one of the calling thread's context.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_HANDLE`, the error that ended its context, and those of [`current`].
pub fn stream(handle: usize) -> Status<(&'static Driver, Arc<Stream>)> {
    let (driver, context) = current()?;
    let stream = match handle {
        0 | LEGACY => context.legacy(driver),
        PER_THREAD => context.per_thread(driver),
        handle => driver.streams.get(handle)?,
    };
    stream.context.check()?;
    Ok((driver, stream))
}

/// Runs a host function, in which no call is permitted.
pub fn as_host_function(call: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    call();
    IN_HOST_FUNCTION.set(false);
}

/// The handle of the calling thread's context.
pub fn top() -> Option<usize> {
    STACK.with_borrow(|stack| stack.last().copied())
}

/// Puts another in its place; none takes it away.
pub fn set_top(handle: Option<usize>) {
    STACK.with_borrow_mut(|stack| {
        stack.pop();
        stack.extend(handle);
    });
}

pub fn push(handle: usize) {
    STACK.with_borrow_mut(|stack| stack.push(handle));
}

/// Takes the calling thread's context away, and returns it.
pub fn pop() -> Option<usize> {
    STACK.with_borrow_mut(Vec::pop)
}
