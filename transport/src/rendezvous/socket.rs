//! Bytes through a stream socket with a deadline, whether or not the socket is set to block.
//!
//! Each call waits in `poll` and then moves what it can without waiting, so a peer that sends one byte a minute can't
//! stretch a limit, and the mode of the caller's socket is left alone.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::handshake::HandshakeError;

/// Fills `bytes`.
pub(crate) fn read(socket: BorrowedFd<'_>, bytes: &mut [u8], deadline: Instant) -> Result<(), HandshakeError> {
    let mut filled = 0;
    while filled < bytes.len() {
        match read_now(socket, &mut bytes[filled..])? {
            Some(0) => return Err(HandshakeError::Closed),
            Some(count) => filled += count,
            None => wait(socket, PollFlags::IN, deadline)?,
        }
    }
    Ok(())
}

/// Sends all of `bytes`.
pub(crate) fn write(socket: BorrowedFd<'_>, mut bytes: &[u8], deadline: Instant) -> Result<(), HandshakeError> {
    while !bytes.is_empty() {
        match write_now(socket, bytes)? {
            Some(count) => bytes = &bytes[count..],
            None => wait(socket, PollFlags::OUT, deadline)?,
        }
    }
    Ok(())
}

/// Reads what is there: `Some(0)` at the end of the stream, `None` if there is nothing yet.
pub(super) fn read_now(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<Option<usize>, HandshakeError> {
    outcome(recv(socket, bytes, RecvFlags::DONTWAIT).map(|(_, count)| count))
}

/// Sends what there is room for; `None` if there is none.
pub(super) fn write_now(socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<Option<usize>, HandshakeError> {
    outcome(send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL))
}

fn outcome(result: Result<usize, Errno>) -> Result<Option<usize>, HandshakeError> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(Errno::CONNRESET | Errno::PIPE) => Err(HandshakeError::Closed),
        Err(error) => Err(HandshakeError::Io(error.into())),
    }
}

/// Waits until the socket is ready; an error once the deadline has passed.
pub(super) fn wait(socket: BorrowedFd<'_>, ready: PollFlags, deadline: Instant) -> Result<(), HandshakeError> {
    let mut polled = [PollFd::from_borrowed_fd(socket, ready)];
    match poll_until(&mut polled, deadline) {
        Ok(0) if deadline <= Instant::now() => Err(HandshakeError::Deadline),
        Ok(_) => Ok(()),
        Err(error) => Err(HandshakeError::Io(error)),
    }
}

/// Polls at most until `until`; returns how many are ready, zero also after a signal.
pub(super) fn poll_until(polled: &mut [PollFd<'_>], until: Instant) -> std::io::Result<usize> {
    let left = until.saturating_duration_since(Instant::now());
    let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    match poll(polled, Some(&timeout)) {
        Ok(ready) => Ok(ready),
        Err(Errno::INTR) => Ok(0),
        Err(error) => Err(error.into()),
    }
}
