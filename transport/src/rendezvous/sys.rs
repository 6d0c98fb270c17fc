//! What only the operating system knows: random bytes, the host's name, descriptors and their limit, the process's end.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use rustix::rand::{GetRandomFlags, getrandom};

/// Bytes from the kernel's random generator.
///
/// # Panics
/// The kernel has none, which Linux doesn't do.
pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the kernel gave no random bytes: {error}"),
        }
    }
    bytes
}

/// The name that this host gives itself.
pub(super) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A copy, closed on exec, of a descriptor that the process was started with.
pub(super) fn inherited(descriptor: RawFd) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: a number that isn't -1 may be borrowed; if nothing is open there, `fcntl` says so and no harm is done. The
    // borrow ends in this statement.
    unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()
}

/// Has `handler` called when the process ends by returning from `main` or by `exit`.
pub(super) fn at_exit(handler: extern "C" fn()) {
    // SAFETY: `handler` is a function of this program and takes no arguments, as `atexit` asks.
    let full = unsafe { libc::atexit(handler) };
    if full != 0 {
        tracing::debug!("no room for a handler at the end of the process");
    }
}
