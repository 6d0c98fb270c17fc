//! One data stream of a link: how its socket is set, and the calls that move bytes without blocking.

#![forbid(unsafe_code)]

use std::io::{IoSlice, IoSliceMut};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::{Errno, FdFlags};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, sockopt};

/// How long a stream is silent before the kernel asks whether its peer's host is there, how often it asks, and how
/// many questions may stay unanswered.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(15), Duration::from_secs(5), 6);
/// The same in all.
const HOST_IS_GONE: Duration = Duration::from_secs(45);

/// What became of a call that moves bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Moved {
    /// That many bytes, at least one.
    Bytes(usize),
    /// None: the kernel has no bytes, or no room, and `epoll` will tell when that changes.
    Blocked,
    /// None, and none ever will be.
    Ended(End),
}

/// How a stream ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The peer closed it.
    Closed,
    /// The operating system gave it up.
    Failed(Errno),
}

/// Prepares a connected stream for a link.
///
/// `TCP_USER_TIMEOUT` is switched off, on purpose. Linux applies it to a closed window too, so a peer that is alive and
/// computes for longer than the timeout before it reads would be declared dead (on Linux 6.18 a peer that didn't read
/// was, after 2.0 s, with a timeout of 1.5 s). Whether the peer's *host* lives is learnt where traffic is small and
/// always read: on the control connection. Here keepalive tells on idle streams, and keeps NAT entries alive.
///
/// The kernel's own tuning of `SO_SNDBUF` and `SO_RCVBUF` stays on. Between two threads on busy cores, 512 KiB a call, it
/// gave a median of 0.3-0.5 GB/s and 2.4 at best; with 256 KiB 0.04-0.3 and 5.8; with 4 MiB 0.5-0.6 and 1.1: neither
/// fixed size is better at both, and what an unprivileged process may fix ends at 208 KiB on most hosts (`wmem_max`),
/// far below what tuning reaches.
pub(super) fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    watch_host(stream)?;
    sockopt::set_tcp_user_timeout(stream, 0)?;
    rustix::io::fcntl_setfd(stream, FdFlags::CLOEXEC)?;
    stream.set_nonblocking(true)
}

/// Prepares the control connection beside a link's streams. It ends when the peer's host has been silent for
/// [`HOST_IS_GONE`], whether this end waits for an answer or not.
pub(crate) fn prepare_control(socket: impl AsFd) -> std::io::Result<()> {
    watch_host(&socket)?;
    sockopt::set_tcp_user_timeout(&socket, HOST_IS_GONE.as_millis() as u32)?;
    Ok(())
}

fn watch_host(socket: impl AsFd) -> rustix::io::Result<()> {
    let (idle, interval, count) = KEEPALIVE;
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, idle)?;
    sockopt::set_tcp_keepintvl(&socket, interval)?;
    sockopt::set_tcp_keepcnt(&socket, count)
}

/// Reads what has arrived into `target`, which isn't empty.
pub(super) fn receive(stream: &TcpStream, target: &mut [u8]) -> Moved {
    arrived(again(|| rustix::net::recv(stream, &mut *target, RecvFlags::DONTWAIT).map(|(_, bytes)| bytes)))
}

/// Reads what has arrived into `target`, which isn't empty, and what doesn't fit there into `spill`.
pub(super) fn receive_both(stream: &TcpStream, target: &mut [u8], spill: &mut [u8]) -> Moved {
    arrived(again(|| rustix::io::readv(stream, &mut [IoSliceMut::new(target), IoSliceMut::new(spill)])))
}

/// Writes what there is room for of `front` followed by `back`, which aren't both empty.
pub(super) fn transmit(stream: &TcpStream, front: &[u8], back: &[u8]) -> Moved {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = again(|| match (front, back) {
        ([], only) | (only, []) => rustix::net::send(stream, only, flags),
        _ => {
            let pieces = [IoSlice::new(front), IoSlice::new(back)];
            rustix::net::sendmsg(stream, &pieces, &mut SendAncillaryBuffer::default(), flags)
        }
    });
    match sent {
        Ok(bytes) => Moved::Bytes(bytes),
        Err(Errno::AGAIN) => Moved::Blocked,
        Err(Errno::PIPE) => Moved::Ended(End::Closed),
        Err(errno) => Moved::Ended(End::Failed(errno)),
    }
}

fn arrived(read: rustix::io::Result<usize>) -> Moved {
    match read {
        Ok(0) => Moved::Ended(End::Closed),
        Ok(bytes) => Moved::Bytes(bytes),
        Err(Errno::AGAIN) => Moved::Blocked,
        Err(errno) => Moved::Ended(End::Failed(errno)),
    }
}

fn again(mut call: impl FnMut() -> rustix::io::Result<usize>) -> rustix::io::Result<usize> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}
