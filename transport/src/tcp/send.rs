//! The sending half of a link: messages cut into frames that go to whichever stream is free.
//!
//! Nothing is copied and nothing is kept but headers. A frame that a stream took only in part stays bound to it, and
//! the rest goes from the caller's memory when the caller presents the message again:
//!
//! ```text
//! message   |accepted.....|..frame 7..|..frame 8..|..frame 9..|  not begun   |
//!                          stream 0    stream 1    done        next free
//!                          took half   took half
//! ```
//!
//! The caller learns of acceptance from the front only, up to the first byte that the kernel doesn't have. A bound
//! stream carries nothing else, so a channel whose message is unfinished must be presented until it is accepted,
//! whatever the caller does meanwhile on others.

#![forbid(unsafe_code)]

use std::net::TcpStream;

use super::frame::{Frame, HEADER_BYTES, PAYLOAD_BYTES_MAX};
use super::socket::{self, End, Moved};
use crate::link::{Channel, LinkError, Stamp};

/// The longest payload put into a frame: the bytes in a row that a message of another channel waits for.
pub(super) const CUT_BYTES_MAX: u64 = 512 << 10;
/// A message is not cut into frames shorter than this for the sake of using all streams.
pub(super) const CUT_BYTES_MIN: u64 = 64 << 10;

const _: () = assert!(CUT_BYTES_MAX <= PAYLOAD_BYTES_MAX as u64);

#[derive(Debug)]
pub(super) struct Sender {
    /// For each stream the frame that it has begun and not finished.
    bound: Vec<Option<Bound>>,
    /// The messages begun and not wholly accepted, at most one for each channel and each with a bound frame.
    unfinished: Vec<Message>,
    /// The number of the next frame.
    sequence: u64,
    /// The stream to try first for the next frame of a message that has several.
    turn: usize,
    end: Option<End>,
}

/// A message, counted in bytes from its beginning.
#[derive(Clone, Copy, Debug)]
struct Message {
    channel: Channel,
    stamp: Stamp,
    bytes: u64,
    /// How much the caller has been told is accepted.
    accepted: u64,
    /// How much is in frames that were begun; `None` before the first.
    begun: Option<u64>,
}

/// A frame that a stream is in the middle of.
#[derive(Clone, Copy, Debug)]
struct Bound {
    channel: Channel,
    header: [u8; HEADER_BYTES],
    /// Where in the message its payload begins.
    first: u64,
    bytes: usize,
    /// Bytes of header and payload that the kernel has taken.
    written: usize,
}

impl Sender {
    pub fn new(streams: usize) -> Sender {
        assert!(streams <= u64::BITS as usize);
        Sender { bound: vec![None; streams], unfinished: Vec::new(), sequence: 0, turn: 0, end: None }
    }

    pub fn has_unfinished(&self) -> bool {
        !self.unfinished.is_empty()
    }

    pub fn send(
        &mut self,
        streams: &[TcpStream],
        channel: Channel,
        stamp: Stamp,
        rest: &[u8],
    ) -> Result<Option<usize>, LinkError> {
        if let Some(end) = self.end {
            return Err(end.into());
        }
        let place = self.unfinished.iter().position(|message| message.channel == channel);
        let mut message = match place {
            Some(place) => self.unfinished[place],
            None => Message { channel, stamp, bytes: rest.len() as u64, accepted: 0, begun: None },
        };
        let due = message.bytes - message.accepted;
        assert!(due == rest.len() as u64, "{channel:?}: {due} bytes are unsent, and {} were presented", rest.len());

        let mut blocked = self.finish_bound(streams, &message, rest)?;
        let accepted = loop {
            let has_room = self.begin_frames(streams, &mut message, rest, &mut blocked)?;
            let accepted = self.accepted(&message);
            if accepted > message.accepted || message.is_begun() || !has_room {
                break accepted;
            }
        };

        let news = (accepted - message.accepted) as usize;
        message.accepted = accepted;
        let done = message.is_begun() && !self.is_bound(channel);
        match (place, done) {
            (Some(place), true) => drop(self.unfinished.swap_remove(place)),
            (Some(place), false) => self.unfinished[place] = message,
            (None, false) if message.begun.is_some() => self.unfinished.push(message),
            (None, _) => {}
        }
        Ok((done || news > 0).then_some(news))
    }

    /// Goes on with the frames of the message that streams are bound to; a bit for each stream that has no room.
    fn finish_bound(&mut self, streams: &[TcpStream], message: &Message, rest: &[u8]) -> Result<u64, LinkError> {
        let mut blocked = 0;
        for (lane, stream) in streams.iter().enumerate() {
            if let Some(bound) = self.bound[lane].filter(|bound| bound.channel == message.channel)
                && !self.push(stream, lane, bound, message, rest)?
            {
                blocked |= 1 << lane;
            }
        }
        Ok(blocked)
    }

    /// Begins at most one frame on each stream that is free, so that a call for a huge message returns and the caller
    /// can receive. Adds to `blocked` the streams that have no room left; whether another is free.
    fn begin_frames(
        &mut self,
        streams: &[TcpStream],
        message: &mut Message,
        rest: &[u8],
        blocked: &mut u64,
    ) -> Result<bool, LinkError> {
        let n = streams.len();
        let cut = message.bytes.div_ceil(n as u64).clamp(CUT_BYTES_MIN, CUT_BYTES_MAX);
        let first_lane = if message.bytes > cut { self.turn } else { 0 };
        for lane in (first_lane..n).chain(0..first_lane) {
            if message.is_begun() {
                break;
            }
            if !self.is_free(lane, *blocked) {
                continue;
            }
            let first = message.begun.unwrap_or(0);
            let bytes = (message.bytes - first).min(cut);
            let frame = Frame {
                channel: message.channel,
                stamp: message.stamp,
                sequence: self.sequence,
                bytes: u32::try_from(bytes).expect("a cut fits"),
            };
            let bound =
                Bound { channel: message.channel, header: frame.encode(), first, bytes: bytes as usize, written: 0 };
            if !self.push(&streams[lane], lane, bound, message, rest)? {
                *blocked |= 1 << lane;
            }
            if self.bound[lane].is_some_and(|bound| bound.written == 0) {
                self.bound[lane] = None;
                continue;
            }
            message.begun = Some(first + bytes);
            self.sequence += 1;
            self.turn = (lane + 1) % n;
        }
        Ok((0..n).any(|lane| self.is_free(lane, *blocked)))
    }

    /// Writes what a stream has room for of a frame, and binds the frame to it if that isn't all; whether it was all.
    fn push(
        &mut self,
        stream: &TcpStream,
        lane: usize,
        mut bound: Bound,
        message: &Message,
        rest: &[u8],
    ) -> Result<bool, LinkError> {
        let paid = bound.written.saturating_sub(HEADER_BYTES);
        let offset = (bound.first + paid as u64 - message.accepted) as usize;
        let payload = &rest[offset..offset + bound.bytes - paid];
        match socket::transmit(stream, &bound.header[bound.written.min(HEADER_BYTES)..], payload) {
            Moved::Bytes(bytes) => bound.written += bytes,
            Moved::Blocked => {}
            Moved::Ended(end) => {
                self.end = Some(end);
                return Err(end.into());
            }
        }
        let whole = bound.written == HEADER_BYTES + bound.bytes;
        self.bound[lane] = (!whole).then_some(bound);
        Ok(whole)
    }

    /// How much of the message, from its front, the kernel has.
    fn accepted(&self, message: &Message) -> u64 {
        let of_message = self.bound.iter().flatten().filter(|bound| bound.channel == message.channel);
        let reached = of_message.map(|bound| bound.first + bound.written.saturating_sub(HEADER_BYTES) as u64);
        reached.fold(message.begun.unwrap_or(0), u64::min)
    }

    fn is_free(&self, lane: usize, blocked: u64) -> bool {
        self.bound[lane].is_none() && blocked & (1 << lane) == 0
    }

    fn is_bound(&self, channel: Channel) -> bool {
        self.bound.iter().flatten().any(|bound| bound.channel == channel)
    }
}

impl Message {
    /// Whether every byte is in a frame that was begun.
    fn is_begun(&self) -> bool {
        self.begun == Some(self.bytes)
    }
}
