//! What only the C library knows of sockets: how much must have arrived before a sleeper is told.

use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// From now on `epoll` and `poll` tell of arrived bytes when there are so many, or when no more will come. Reading gives what
/// there is, as before. The kernel makes its buffer large enough for them, or tells when that is full.
pub(super) fn tell_from(stream: &TcpStream, bytes: usize) -> std::io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let len = libc::socklen_t::try_from(size_of_val(&bytes)).expect("four bytes");
    // SAFETY: the option is a `c_int`, which outlives the call, and `len` is its length.
    let set = unsafe {
        libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, (&raw const bytes).cast(), len)
    };
    if set == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
