//! TCP: a link to a rank on another host, over one or several connections.
//!
//! What is built on connections that exist comes first ([`TcpLink`], [`frame`]), then what makes them: which addresses
//! this host has ([`interface`]), waiting on one of them ([`listen`]), and reaching a peer's ([`connect`]).

pub mod connect;
pub mod frame;
pub mod interface;
pub mod listen;

mod buffer;
mod filter;
mod receive;
mod send;
mod socket;
mod sys;

#[cfg(test)]
mod tests;

use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use crate::link::{Channel, Head, LinkError, Stamp};
use receive::Receiver;
use send::Sender;
pub(crate) use socket::prepare_control;

/// The most streams that a link may have.
pub const STREAMS_MAX: usize = 64;

/// A link over one or several TCP connections, the *data streams*.
///
/// It keeps the promises of [`crate::link`]. What it adds for an owner who sleeps in an edge-triggered `epoll` on
/// [`fds`](TcpLink::fds) (`EPOLLIN | EPOLLOUT | EPOLLRDHUP`): after each wake-up, go on calling until `head` gives
/// `None` or a head without bytes, `recv_into` gives 0, and `send` gives `None`. Only then is a new edge promised.
///
/// Dropping the link closes the streams; what `send` accepted is still delivered if the peer reads it and this end had
/// read what arrived.
#[derive(Debug)]
pub struct TcpLink {
    streams: Vec<TcpStream>,
    receiver: Receiver,
    sender: Sender,
}

impl TcpLink {
    /// A link over connected streams, given in the same order at both ends and with nothing unread in them that isn't
    /// the link's. They are made non-blocking.
    ///
    /// # Errors
    ///
    /// If there are none or more than [`STREAMS_MAX`], or if a socket can't be set up.
    pub fn new(streams: Vec<TcpStream>) -> std::io::Result<TcpLink> {
        let n_streams = streams.len();
        if !(1..=STREAMS_MAX).contains(&n_streams) {
            let text = format!("a TCP link has 1 to {STREAMS_MAX} streams, not {n_streams}");
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, text));
        }
        streams.iter().try_for_each(socket::prepare)?;
        Ok(TcpLink { streams, receiver: Receiver::new(n_streams), sender: Sender::new(n_streams) })
    }

    /// The oldest frame that isn't wholly read, in the order in which the peer began its frames; `None` if its header
    /// hasn't arrived. Reads from the sockets only when less than 64 bytes of the frame are here and it has more.
    ///
    /// # Errors
    ///
    /// [`LinkError::Closed`] and [`LinkError::Io`] once everything that arrived before a stream's end has been read;
    /// [`LinkError::Protocol`] if the bytes are no frames or one is missing. An error stays: calls repeat it.
    pub fn head(&mut self) -> Result<Option<Head<'_>>, LinkError> {
        self.receiver.head(&self.streams)
    }

    /// Gives back the first `bytes` that [`head`](TcpLink::head) lent. A frame is released when its last byte is; an
    /// empty frame is released by `advance(0)`.
    ///
    /// # Panics
    ///
    /// If there is no head, or if it has lent fewer bytes.
    pub fn advance(&mut self, bytes: usize) {
        self.receiver.advance(bytes);
    }

    /// Moves bytes of the head into `target` and says how many: at most one frame's, 0 if none have arrived or `target`
    /// is empty. A frame whose last byte is moved is released; an empty frame isn't, that takes `advance(0)`.
    ///
    /// # Errors
    ///
    /// As for [`head`](TcpLink::head).
    pub fn recv_into(&mut self, target: &mut [u8]) -> Result<usize, LinkError> {
        self.receiver.recv_into(&self.streams, target)
    }

    /// Sends from the front of `message` and says how many bytes were accepted; `None` if there is no room now.
    /// `Some(0)` says that an empty message was sent. One call begins at most one frame on each stream.
    ///
    /// Until a message is wholly accepted, each call for its channel presents all of its bytes that weren't. It must be
    /// presented again whatever becomes of other channels: they may wait for the stream that it has in part.
    ///
    /// # Errors
    ///
    /// [`LinkError::Closed`] and [`LinkError::Io`] if a stream can't be written to any more. What arrived before can
    /// still be read.
    ///
    /// # Panics
    ///
    /// If the bytes presented are more or fewer than the channel's unfinished message has left.
    pub fn send(&mut self, channel: Channel, stamp: Stamp, message: &[u8]) -> Result<Option<usize>, LinkError> {
        self.sender.send(&self.streams, channel, stamp, message)
    }

    /// From now on, what is in the middle of arriving wakes a sleeper in `epoll` only by its end or by a large part of it; with
    /// `false`, by every piece. To be repeated before each sleep, and ended with `false`.
    pub fn coalesce(&mut self, on: bool) {
        self.receiver.coalesce(&self.streams, on);
    }

    /// Whether a message has been begun and not wholly accepted.
    #[must_use]
    pub fn has_unfinished_output(&self) -> bool {
        self.sender.has_unfinished()
    }

    /// The sockets, for `epoll`.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.streams.iter().map(AsFd::as_fd)
    }
}
