//! A communicator as C holds it: the communicator, what C has set of it, and what went wrong last.

#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use paceline_comm::{CallOptions, Communicator, DataType, RawWork, ReduceOp};

use crate::error::{Failure, INVALID_ARGUMENT, INVALID_USAGE};
use crate::handles::{Kind, Room};

static COMMS: Room<Comm> = Room::new(Kind::Comm);

/// Operators that C makes have numbers from here on.
const FIRST_OPERATOR: u32 = 0x100;
/// `pclMaxRedOp`.
const LAST_OPERATOR: u32 = 0x7fff_fffe;
/// How long who destroys a communicator waits for calls in other threads to end, which abort has told to.
const LEAVING: Duration = Duration::from_secs(10);
/// How long they are left alone: most only ask for something.
const SHORTLY: Duration = Duration::from_millis(20);

/// A communicator as C holds it.
pub(crate) struct Comm {
    pub(crate) comm: Communicator,
    name: String,
    /// What `pclConfig_t` said, in milliseconds; 0: nothing.
    made_with_ms: u64,
    /// How long calls may take, in milliseconds; 0: the communicator's own timeout.
    timeout_ms: AtomicU64,
    is_freed: AtomicBool,
    last: Mutex<Option<Failure>>,
    operators: Mutex<HashMap<u32, (DataType, u64)>>,
    next_operator: AtomicU32,
    /// Works that may still be under way.
    started: Mutex<Vec<RawWork>>,
    #[cfg(feature = "cuda")]
    pub(crate) device: std::sync::OnceLock<paceline_comm::cuda::DeviceCommunicator>,
}

thread_local! {
    /// The communicator that the thread used last, by its handle.
    static RECENT: RefCell<(usize, Weak<Comm>)> = const { RefCell::new((0, Weak::new())) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A handle for a communicator.
pub(crate) fn admit(comm: Communicator, name: String, timeout_ms: u64) -> *mut c_void {
    COMMS.admit(Arc::new(Comm {
        comm,
        name,
        made_with_ms: timeout_ms,
        timeout_ms: AtomicU64::new(timeout_ms),
        is_freed: AtomicBool::new(false),
        last: Mutex::default(),
        operators: Mutex::default(),
        next_operator: AtomicU32::new(FIRST_OPERATOR),
        started: Mutex::default(),
        #[cfg(feature = "cuda")]
        device: std::sync::OnceLock::new(),
    }))
}

/// Runs `body` with the communicator behind a handle.
#[inline]
pub(crate) fn with<R>(handle: *mut c_void, body: impl FnOnce(&Arc<Comm>) -> R) -> Result<R, Failure> {
    let recent = RECENT.try_with(|recent| {
        let recent = recent.try_borrow().ok()?;
        if recent.0 == handle.addr() { recent.1.upgrade() } else { None }
    });
    match recent.ok().flatten() {
        Some(comm) if !comm.is_freed.load(Ordering::Relaxed) => Ok(body(&comm)),
        _ => Ok(body(&find(handle)?)),
    }
}

/// The communicator behind a handle, which the thread remembers.
#[cold]
pub(crate) fn find(handle: *mut c_void) -> Result<Arc<Comm>, Failure> {
    let comm = COMMS.find(handle)?;
    let _ = RECENT.try_with(|recent| {
        if let Ok(mut recent) = recent.try_borrow_mut() {
            *recent = (handle.addr(), Arc::downgrade(&comm));
        }
    });
    Ok(comm)
}

/// Frees a handle; with a reason, after every call has been ended on all ranks.
pub(crate) fn free(handle: *mut c_void, reason: Option<&str>) -> Result<(), Failure> {
    let mut comm = COMMS.dismiss(handle)?;
    comm.is_freed.store(true, Ordering::SeqCst);
    if let Some(reason) = reason {
        comm.comm.abort(reason);
    }
    // Who has looked at the mark before it was set is counted by now.
    fence(Ordering::SeqCst);
    let mut waited = Duration::ZERO;
    loop {
        comm = match Arc::try_unwrap(comm) {
            Ok(alone) => {
                drop(alone);
                return Ok(());
            }
            Err(shared) => shared,
        };
        if waited == SHORTLY {
            comm.comm.abort("the communicator was destroyed while another thread was in a call");
        }
        if LEAVING <= waited {
            return Err(Failure::usage("another thread is still in a call; the communicator ends with it"));
        }
        let pause = Duration::from_millis(1);
        std::thread::sleep(pause);
        waited += pause;
    }
}

impl Comm {
    /// Which rank of which communicator this is, in words.
    pub(crate) fn whose(&self) -> String {
        let (rank, size) = (self.comm.rank(), self.comm.size());
        let name = if self.name.is_empty() { String::new() } else { format!(" of {}", self.name) };
        format!("rank {rank}{name} (n = {size})")
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Keeps an error as the last one. One that says what killed the communicator isn't replaced by one about arguments.
    pub(crate) fn keep(&self, failure: Failure) {
        let mut last = lock(&self.last);
        let is_mild = |failure: &Failure| matches!(failure.code, INVALID_ARGUMENT | INVALID_USAGE);
        if is_mild(&failure) && last.as_ref().is_some_and(|last| !is_mild(last)) {
            return;
        }
        *last = Some(failure);
    }

    pub(crate) fn last(&self) -> Option<Failure> {
        lock(&self.last).clone()
    }

    /// The timeout that C has set, if it has.
    #[inline]
    pub(crate) fn timeout(&self) -> Option<Duration> {
        match self.timeout_ms.load(Ordering::Relaxed) {
            0 => None,
            ms => Some(Duration::from_millis(ms)),
        }
    }

    pub(crate) fn set_timeout(&self, ms: u64) {
        self.timeout_ms.store(if ms == 0 { self.made_with_ms } else { ms }, Ordering::Relaxed);
    }

    /// A handle whose calls have the timeout that C has set, or their own.
    pub(crate) fn patient(&self, own: Option<Duration>, algorithm: Option<String>) -> Communicator {
        self.comm.with(CallOptions { timeout: own.or(self.timeout()), algorithm })
    }

    pub(crate) fn add_operator(&self, data_type: DataType, bits: u64) -> Result<c_int, Failure> {
        let number = self.next_operator.fetch_add(1, Ordering::Relaxed);
        if LAST_OPERATOR < number {
            return Err(Failure::usage("a communicator makes two thousand million operators and no more"));
        }
        lock(&self.operators).insert(number, (data_type, bits));
        Ok(number as c_int)
    }

    pub(crate) fn remove_operator(&self, op: c_int) -> Result<(), Failure> {
        let removed = lock(&self.operators).remove(&(op as u32));
        removed.map(drop).ok_or_else(|| Failure::argument(format!("{op} is no operator of this communicator")))
    }

    /// The operator that C calls `op`.
    #[inline]
    pub(crate) fn operator(&self, op: c_int, data_type: DataType) -> Result<ReduceOp, Failure> {
        Ok(match op {
            0 => ReduceOp::Sum,
            1 => ReduceOp::Prod,
            2 => ReduceOp::Max,
            3 => ReduceOp::Min,
            4 => ReduceOp::Avg,
            _ => return self.own_operator(op, data_type),
        })
    }

    #[cold]
    fn own_operator(&self, op: c_int, data_type: DataType) -> Result<ReduceOp, Failure> {
        let made = lock(&self.operators).get(&(op as u32)).copied();
        let (of, bits) = made.ok_or_else(|| {
            Failure::argument(format!("the operator {op} is none of pclRedOp_t, and none that was made"))
        })?;
        if of != data_type {
            return Err(Failure::argument(format!("the operator {op} was made for {of}, and is used for {data_type}")));
        }
        Ok(ReduceOp::PreMulSum(bits))
    }

    /// Remembers works for [`Comm::finish`].
    pub(crate) fn note_started(&self, works: impl IntoIterator<Item = RawWork>) {
        let mut started = lock(&self.started);
        if started.len() == started.capacity() {
            started.retain(|work| work.test().is_none());
        }
        started.extend(works);
    }

    /// Waits for the works under way; the first error.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        let works = std::mem::take(&mut *lock(&self.started));
        let ends: Vec<_> = works.iter().map(RawWork::wait).collect();
        ends.into_iter().collect::<Result<(), _>>().map_err(Failure::from)
    }
}
