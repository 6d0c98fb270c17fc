//! Kernels that touch memory that they may not: the launch ends, and not the process.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{mem, ptr};

use libc::{SA_ONSTACK, SA_SIGINFO, SIG_DFL, SIG_IGN, SIGBUS, SIGSEGV, sigaction, siginfo_t};
use libloading::Library;

use crate::module::Entry;

type Run = unsafe extern "C" fn(Entry, *const c_void, u32, u32, *mut usize) -> c_int;
type Escape = unsafe extern "C" fn();

/// What a module has to end its launches by.
#[derive(Clone, Copy)]
pub struct Guard {
    run: Run,
    escape: Escape,
}

thread_local! {
    /// How to leave the launch that this thread is in.
    static ESCAPE: Cell<Option<Escape>> = const { Cell::new(None) };
    /// The address that made it leave.
    static ADDRESS: Cell<u64> = const { Cell::new(0) };
}

/// What the process did before with the two signals.
static BEFORE: [AtomicPtr<sigaction>; 2] = [AtomicPtr::new(ptr::null_mut()), AtomicPtr::new(ptr::null_mut())];
const SIGNALS: [c_int; 2] = [SIGSEGV, SIGBUS];

impl Guard {
    pub fn of(library: &Library) -> Option<Guard> {
        // SAFETY: the software NVRTC defines the two with these types.
        unsafe {
            Some(Guard { run: *library.get("paceline_guarded").ok()?, escape: *library.get("paceline_escape").ok()? })
        }
    }

    /// Runs a launch. Returns how many addresses were misaligned.
    ///
    /// # Errors
    ///
    /// The address that it may not touch.
    ///
    /// # Safety
    ///
    /// `argument` is that of the kernel.
    pub unsafe fn run(&self, entry: Entry, argument: *const c_void, blocks: u32, threads: u32) -> Result<usize, u64> {
        watch();
        ESCAPE.set(Some(self.escape));
        let mut misaligned = 0;
        // SAFETY: as the caller says.
        let was_ended = unsafe { (self.run)(entry, argument, blocks, threads, &mut misaligned) };
        ESCAPE.set(None);
        if was_ended == 0 { Ok(misaligned) } else { Err(ADDRESS.get()) }
    }
}

/// Has this process told of accesses that are not permitted.
fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        for (signal, before) in SIGNALS.into_iter().zip(&BEFORE) {
            // SAFETY: all zeros are such values, and the function does what a handler may do.
            unsafe {
                let mut wanted: sigaction = mem::zeroed();
                wanted.sa_sigaction = on_fault as *const () as usize;
                wanted.sa_flags = SA_SIGINFO | SA_ONSTACK;
                let known = Box::into_raw(Box::new(mem::zeroed::<sigaction>()));
                before.store(known, Ordering::Release);
                libc::sigaction(signal, &wanted, known);
            }
        }
    });
}

/// Leaves the launch, if the thread is in one. Otherwise does what the process did before.
extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    if let Some(escape) = ESCAPE.get() {
        // SAFETY: the kernel gives the information; nothing between here and the launch has anything to drop.
        unsafe {
            ADDRESS.set((*info).si_addr() as u64);
            escape();
        }
    }
    let place = SIGNALS.iter().position(|known| *known == signal).unwrap_or(0);
    let before = BEFORE[place].load(Ordering::Acquire);
    // SAFETY: it was written before the handler was there, and is never freed; a handler is called as it was set.
    unsafe {
        let before = &*before;
        if before.sa_sigaction == SIG_DFL || before.sa_sigaction == SIG_IGN {
            // The access is made again, and ends the process.
            libc::signal(signal, SIG_DFL);
        } else if before.sa_flags & SA_SIGINFO != 0 {
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = mem::transmute(before.sa_sigaction);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(c_int) = mem::transmute(before.sa_sigaction);
            handler(signal);
        }
    }
}
