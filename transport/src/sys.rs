//! What only the C library knows: forks, and slices of the processor.

use std::time::Duration;

/// Has `handler` called in every child that this process forks from now on.
pub(crate) fn at_fork_in_child(handler: extern "C" fn()) -> std::io::Result<()> {
    // SAFETY: `handler` is a function of this program, takes no arguments, and is called after the fork in the child; it
    // touches an atomic only, which is sound in a child of a process with threads.
    match unsafe { libc::pthread_atfork(None, None, Some(handler)) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(error)),
    }
}

/// Asks for slices of this length for the calling thread, if it is scheduled in the usual way; whether it is. Kernels before
/// Linux 6.12 take no notice.
pub(crate) fn ask_for_slices(slice: Duration) -> std::io::Result<bool> {
    let size = size_of::<libc::sched_attr>() as u32;
    let mut now = libc::sched_attr {
        size,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel writes at most `size` bytes to `now`, which is as large and outlives the call; thread 0 is the caller.
    if unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, size, 0) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    if now.sched_policy != libc::SCHED_OTHER as u32 {
        return Ok(false);
    }
    let wanted = libc::sched_attr { size, sched_runtime: slice.as_nanos() as u64, ..now };
    // SAFETY: the kernel reads `size` bytes of `wanted`, which is as large and outlives the call.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) } {
        0 => Ok(true),
        _ => Err(std::io::Error::last_os_error()),
    }
}
