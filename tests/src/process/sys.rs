//! C calls: fork, and a mount namespace of one's own.
#![allow(unsafe_code)]

use rustix::thread::UnshareFlags;

/// What the process is after [`fork`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The new process.
    Child,
    /// The old one, with the number of the new one.
    Parent(i32),
}

/// Forks. The child has only the calling thread.
///
/// # Errors
///
/// The system refuses.
pub fn fork() -> std::io::Result<Side> {
    // SAFETY: the child may find locks held by threads that it doesn't have; that is what the tests that call this are
    // about, and whoever calls it sees to it that the child needs none of its own.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()),
        0 => Ok(Side::Child),
        child => Ok(Side::Parent(child)),
    }
}

/// Gives the calling thread, and what it starts from now on, mounts of its own.
pub(super) fn own_mounts() -> std::io::Result<()> {
    // SAFETY: no file descriptors or memory are unshared; only paths mean something else in this thread.
    Ok(unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }?)
}
