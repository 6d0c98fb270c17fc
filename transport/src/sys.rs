//! What only the C library knows: forks.

/// Has `handler` called in every child that this process forks from now on.
pub(crate) fn at_fork_in_child(handler: extern "C" fn()) -> std::io::Result<()> {
    // SAFETY: `handler` is a function of this program, takes no arguments, and is called after the fork in the child; it
    // touches an atomic only, which is sound in a child of a process with threads.
    match unsafe { libc::pthread_atfork(None, None, Some(handler)) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(error)),
    }
}
