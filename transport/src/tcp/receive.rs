//! The receiving half of a link: frames in the order of their sequence numbers, from whatever stream they came on.
//!
//! Each stream's first unread frame has its header taken off; the frame whose number is next is the head. What lies
//! behind the other headers stays in the kernel, so its window stops the sender. A call that finds nothing has seen
//! every stream that might hold the next frame run dry, which is what an edge-triggered `epoll` needs.
//!
//! Reads through the buffer take as much as there is, so a small frame costs one system call. A reader that fills its
//! own memory (`recv_into`) is remembered: then little is read with a header, and payload goes straight into place.

#![forbid(unsafe_code)]

use std::net::TcpStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::buffer::{BUFFER_BYTES, Buffer};
use super::frame::{self, Frame};
use super::socket::{self, End, Moved};
use super::sys;
use crate::link::{Head, LinkError};

/// Bytes read along with a header when the payload probably goes through the buffer: a short cut's whole frame.
const EAGER_BYTES: usize = 128 << 10;
/// Bytes read along with a header when the payload probably goes straight into place.
const SHY_BYTES: usize = 8 << 10;
/// The most bytes that come together before a sleeper is woken.
const COALESCED_BYTES: usize = BUFFER_BYTES;
/// What `head` shows of a frame if it is there, so that a reader who takes whole elements never starves.
const WHOLE_BYTES: usize = 64;

#[derive(Debug)]
pub(super) struct Receiver {
    lanes: Vec<Arriving>,
    /// The number of the frame to be read next, or being read.
    sequence: u64,
    current: Option<Current>,
    /// The stream to ask first: the one that carried the last frame.
    likely: usize,
    /// Whether payload was last read by `recv_into`.
    into_place: bool,
}

/// What has arrived on one stream.
#[derive(Debug)]
struct Arriving {
    buffer: Buffer,
    /// The frame whose payload the buffer begins with.
    frame: Option<Frame>,
    end: Option<End>,
    /// How many bytes must have arrived before a sleeper, or one who polls, is told.
    told_from: usize,
}

/// The head.
#[derive(Clone, Copy, Debug)]
struct Current {
    lane: usize,
    frame: Frame,
    left: usize,
}

impl Receiver {
    pub fn new(streams: usize) -> Receiver {
        let lanes = (0..streams).map(|_| Arriving::new()).collect();
        Receiver { lanes, sequence: 0, current: None, likely: 0, into_place: false }
    }

    pub fn head(&mut self, streams: &[TcpStream]) -> Result<Option<Head<'_>>, LinkError> {
        let Some(Current { lane, frame, left }) = self.find(streams)? else {
            return Ok(None);
        };
        let limit = if self.into_place { SHY_BYTES } else { BUFFER_BYTES };
        let arriving = &mut self.lanes[lane];
        while arriving.buffer.unread().len() < left.min(WHOLE_BYTES) && arriving.read(&streams[lane], limit) {}
        let unread = arriving.buffer.unread();
        if let (0, 1.., Some(end)) = (unread.len(), left, arriving.end) {
            return Err(end.into());
        }
        let bytes = &unread[..left.min(unread.len())];
        Ok(Some(Head { channel: frame.channel, stamp: frame.stamp, left, bytes }))
    }

    pub fn advance(&mut self, bytes: usize) {
        let current = self.current.expect("advance without a head");
        assert!(bytes <= current.left, "advance by {bytes} in a frame with {} bytes left", current.left);
        self.lanes[current.lane].buffer.consume(bytes);
        if bytes > 0 {
            self.into_place = false;
        }
        self.count(bytes);
    }

    pub fn recv_into(&mut self, streams: &[TcpStream], target: &mut [u8]) -> Result<usize, LinkError> {
        let Some(Current { lane, left, .. }) = self.find(streams)? else {
            return Ok(0);
        };
        let wanted = left.min(target.len());
        if wanted == 0 {
            return Ok(0);
        }
        self.into_place = true;
        let arriving = &mut self.lanes[lane];
        let moved = arriving.move_into(&streams[lane], &mut target[..wanted]);
        if let (0, Some(end)) = (moved, arriving.end) {
            return Err(end.into());
        }
        if moved > 0 {
            self.count(moved);
        }
        Ok(moved)
    }

    pub fn coalesce(&mut self, streams: &[TcpStream], on: bool) {
        for (lane, (arriving, stream)) in self.lanes.iter_mut().zip(streams).enumerate() {
            let left = match (self.current.filter(|current| current.lane == lane), arriving.frame) {
                (Some(current), _) => current.left,
                (None, Some(frame)) => frame.bytes as usize,
                (None, None) => 0,
            };
            let missing = left.saturating_sub(arriving.buffer.unread().len());
            let told_from = if on { missing.clamp(1, COALESCED_BYTES) } else { 1 };
            // Where it can't be set the sleeper is woken more often, or once more than it is worth.
            if told_from != arriving.told_from && sys::tell_from(stream, told_from).is_ok() {
                arriving.told_from = told_from;
            }
        }
    }

    /// Counts bytes of the head as read, and releases it when they were the last.
    fn count(&mut self, bytes: usize) {
        let current = self.current.as_mut().expect("a head");
        current.left -= bytes;
        if current.left == 0 {
            self.lanes[current.lane].frame = None;
            self.likely = current.lane;
            self.current = None;
            self.sequence += 1;
        }
    }

    /// The head, looked for on every stream that may hold it.
    fn find(&mut self, streams: &[TcpStream]) -> Result<Option<Current>, LinkError> {
        if self.current.is_none() {
            self.current = self.at_hand()?;
        }
        if self.current.is_none() {
            self.current = self.ask(streams)?;
        }
        match self.current {
            Some(current) => Ok(Some(current)),
            None => self.check_life().map(|()| None),
        }
    }

    /// The next frame, if its header is in a buffer.
    fn at_hand(&mut self) -> Result<Option<Current>, LinkError> {
        for lane in 0..self.lanes.len() {
            if self.lanes[lane].parse()?
                && let Some(current) = self.check_turn(lane)?
            {
                return Ok(Some(current));
            }
        }
        Ok(None)
    }

    /// The next frame, if its header can be read from a socket: first from the likely stream's; then, as most calls of
    /// a waiting reader find nothing anywhere, one call asks which of the others are worth reading.
    fn ask(&mut self, streams: &[TcpStream]) -> Result<Option<Current>, LinkError> {
        if let Some(current) = self.read_header(streams, self.likely)? {
            return Ok(Some(current));
        }
        let open: Vec<usize> =
            (0..self.lanes.len()).filter(|&lane| lane != self.likely && self.lanes[lane].is_open()).collect();
        let mut ready = vec![true; open.len()];
        if open.len() > 1 {
            let mut asked: Vec<_> = open.iter().map(|&lane| PollFd::new(&streams[lane], PollFlags::IN)).collect();
            // A failed poll (it was interrupted, or memory is short) says nothing: then every stream is tried.
            if poll(&mut asked, Some(&Timespec::default())).is_ok() {
                let told = open.iter().map(|&lane| self.lanes[lane].told_from == 1);
                ready = asked.iter().zip(told).map(|(fd, told)| !fd.revents().is_empty() || !told).collect();
            }
        }
        for (&lane, _) in open.iter().zip(ready).filter(|&(_, ready)| ready) {
            if let Some(current) = self.read_header(streams, lane)? {
                return Ok(Some(current));
            }
        }
        Ok(None)
    }

    /// Reads a stream until the header of its first frame is here or nothing comes; the frame, if it is the next.
    fn read_header(&mut self, streams: &[TcpStream], lane: usize) -> Result<Option<Current>, LinkError> {
        let limit = if self.into_place { SHY_BYTES } else { EAGER_BYTES };
        let arriving = &mut self.lanes[lane];
        while arriving.is_open() && arriving.read(&streams[lane], limit) {
            arriving.parse()?;
        }
        self.check_turn(lane)
    }

    fn check_turn(&self, lane: usize) -> Result<Option<Current>, LinkError> {
        match self.lanes[lane].frame {
            Some(frame) if frame.sequence == self.sequence => {
                Ok(Some(Current { lane, frame, left: frame.bytes as usize }))
            }
            Some(frame) if frame.sequence < self.sequence => Err(LinkError::Protocol(format!(
                "frame {} came again, on stream {lane}, where frame {} was due",
                frame.sequence, self.sequence
            ))),
            _ => Ok(None),
        }
    }

    /// Whether the next frame may still come. A stream that the peer closed is waited for no longer, but others may
    /// still hold what was sent before the peer left.
    fn check_life(&self) -> Result<(), LinkError> {
        let failed = |end: End| matches!(end, End::Failed(_));
        if let Some(end) = self.lanes.iter().filter_map(|lane| lane.end).find(|&end| failed(end)) {
            return Err(end.into());
        }
        if self.lanes.iter().any(Arriving::is_open) {
            return Ok(());
        }
        if self.lanes.iter().any(|lane| lane.end.is_some()) {
            return Err(LinkError::Closed);
        }
        let held: Vec<u64> = self.lanes.iter().filter_map(|lane| lane.frame.map(|frame| frame.sequence)).collect();
        Err(LinkError::Protocol(format!("frame {} is missing: the streams hold {held:?}", self.sequence)))
    }
}

impl Arriving {
    fn new() -> Arriving {
        Arriving { buffer: Buffer::new(), frame: None, end: None, told_from: 1 }
    }

    /// Whether a header is wanted and may come.
    fn is_open(&self) -> bool {
        self.frame.is_none() && self.end.is_none()
    }

    /// Takes the next header off the buffer; whether a frame's header has been taken off.
    fn parse(&mut self) -> Result<bool, LinkError> {
        if self.frame.is_none()
            && let Some((frame, used)) = frame::parse(self.buffer.unread())?
        {
            self.buffer.consume(used);
            self.frame = Some(frame);
        }
        Ok(self.frame.is_some())
    }

    /// Reads up to `limit` bytes into the buffer; whether any came.
    fn read(&mut self, stream: &TcpStream, limit: usize) -> bool {
        if self.end.is_some() {
            return false;
        }
        match socket::receive(stream, self.buffer.room(limit)) {
            Moved::Bytes(bytes) => self.buffer.fill(bytes),
            Moved::Blocked => return false,
            Moved::Ended(end) => {
                self.end = Some(end);
                return false;
            }
        }
        true
    }

    /// Moves payload into `target`, from the buffer first and then from the socket; how much. A call that read less
    /// than it asked for is the last, unless it brought nothing at all.
    fn move_into(&mut self, stream: &TcpStream, target: &mut [u8]) -> usize {
        let unread = self.buffer.unread();
        let mut moved = unread.len().min(target.len());
        target[..moved].copy_from_slice(&unread[..moved]);
        self.buffer.consume(moved);
        while moved < target.len() && self.end.is_none() {
            let rest = &mut target[moved..];
            let wanted = rest.len();
            match socket::receive_both(stream, rest, self.buffer.room(SHY_BYTES)) {
                Moved::Bytes(bytes) => {
                    let spilt = bytes.saturating_sub(wanted);
                    self.buffer.fill(spilt);
                    moved += bytes - spilt;
                    if bytes < wanted {
                        break;
                    }
                }
                Moved::Blocked => break,
                Moved::Ended(end) => self.end = Some(end),
            }
        }
        moved
    }
}

impl From<End> for LinkError {
    fn from(end: End) -> LinkError {
        match end {
            End::Closed => LinkError::Closed,
            End::Failed(errno) => LinkError::Io(errno.into()),
        }
    }
}
