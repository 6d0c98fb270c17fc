//! One directed wire: what is on it, what has arrived, and how much may still be sent.
//!
//! Frames pay bandwidth one after another and then fly; post (credits, notices, goodbyes) only flies. Each of the two is
//! a [`Pipe`], which keeps order by never letting an item arrive before the one ahead of it.

use std::collections::VecDeque;
use std::time::Duration;

use super::ports::{Passage, Piece};
use super::state::{End, Event};
use super::{LinkProfile, Random};
use crate::clock::Time;
use crate::control::ControlEvent;
use crate::link::{Channel, Stamp};

pub(super) struct Frame {
    pub channel: Channel,
    pub stamp: Stamp,
    pub bytes: Vec<u8>,
    /// Where the frame's first byte lies in everything that was ever sent over the wire.
    pub start: u64,
}

/// What a wire's end is told when no frame will follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    Open,
    Left,
    Killed(Time),
    Cut(Time),
}

pub(super) enum Flight {
    /// A frame, and how many of its bytes are here with it.
    Begin(Frame, usize),
    /// So many further bytes of the frame that began last.
    More(usize),
    /// Nothing will follow.
    End(Standing),
}

pub(super) enum Post {
    /// The other end has read frames that took so much of the opposite wire's window.
    Credit(usize),
    Control(ControlEvent),
}

/// Items under way, each with the moment it arrives, in order.
pub(super) struct Pipe<T> {
    items: VecDeque<(Time, T)>,
    last: Time,
}

impl<T> Pipe<T> {
    pub fn new() -> Pipe<T> {
        Pipe { items: VecDeque::new(), last: Time(0) }
    }

    /// Adds an item that arrives at `at`, or with the one ahead of it where that is later. Answers when the pipe has to
    /// be looked at, if that isn't on the agenda yet.
    #[must_use]
    pub fn push(&mut self, at: Time, item: T) -> Option<Time> {
        self.last = self.last.max(at);
        self.items.push_back((self.last, item));
        (self.items.len() == 1).then_some(self.last)
    }

    /// When the oldest item arrives.
    pub fn due(&self) -> Option<Time> {
        self.items.front().map(|&(at, _)| at)
    }

    pub fn pop(&mut self) -> Option<T> {
        let (_, item) = self.items.pop_front()?;
        if self.items.is_empty() {
            self.items = VecDeque::new();
        }
        Some(item)
    }

    /// Lets the oldest item, and so all behind it, arrive no earlier than `until`.
    pub fn hold(&mut self, until: Time) {
        if let Some((at, _)) = self.items.front_mut() {
            *at = until.max(*at);
            self.last = self.last.max(*at);
        }
    }

    pub fn clear(&mut self) {
        self.items = VecDeque::new();
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }
}

pub(super) struct Wire {
    pub profile: LinkProfile,
    pub random: Random,
    pub frames: Pipe<Flight>,
    /// The ports on the way, where there are any.
    pub passage: Option<Box<Passage>>,
    pub post: Pipe<Post>,
    /// Frames that have begun to arrive and that the receiver's link has not taken.
    pub arrived: VecDeque<Frame>,
    /// Control events that have arrived and are unread.
    pub inbox: VecDeque<ControlEvent>,
    /// Whether a goodbye has arrived that the last frames have not yet.
    pub goodbye_waits: bool,
    /// Bytes ever arrived.
    pub delivered: u64,
    /// Window taken by frames not yet known to be read.
    pub in_flight: usize,
    sent: u64,
    busy_until: Time,
}

/// How messages are cut into frames and frames into pieces.
#[derive(Clone, Copy)]
pub(super) struct Split {
    pub frame_bytes: usize,
    pub grain_bytes: usize,
    pub piece_bytes: usize,
    pub window_bytes: usize,
    pub ragged: bool,
}

impl Wire {
    pub fn new(profile: LinkProfile, random: Random) -> Wire {
        Wire {
            profile,
            random,
            frames: Pipe::new(),
            passage: None,
            post: Pipe::new(),
            arrived: VecDeque::new(),
            inbox: VecDeque::new(),
            goodbye_waits: false,
            delivered: 0,
            in_flight: 0,
            sent: 0,
            busy_until: Time(0),
        }
    }

    /// How many bytes of `message_bytes` the next frame holds; `None` for want of room.
    pub fn room(&mut self, message_bytes: usize, split: Split) -> Option<usize> {
        let room = split.window_bytes.saturating_sub(self.in_flight);
        let grains = |bytes: usize| bytes - bytes % split.grain_bytes;
        let most = message_bytes.min(room).min(split.frame_bytes);
        let most = if most < message_bytes { grains(most) } else { most };
        if room == 0 || (most == 0 && message_bytes > 0) {
            return None;
        }
        let bytes = self.length(most, split.ragged);
        Some(if bytes < message_bytes { grains(bytes).max(split.grain_bytes).min(most) } else { bytes })
    }

    /// Puts a frame on the wire at `now`, which arrives `late` later than it otherwise would. Answers what has to be looked
    /// at when, if that isn't on the agenda yet.
    pub fn launch(
        &mut self,
        end: End,
        (channel, stamp): (Channel, Stamp),
        bytes: &[u8],
        split: Split,
        now: Time,
        late: Duration,
    ) -> Option<(Time, Event)> {
        let frame = Frame { channel, stamp, bytes: bytes.to_vec(), start: self.sent };
        self.sent += bytes.len() as u64;
        self.in_flight += window_cost(bytes.len());
        self.busy_until = self.busy_until.max(now);

        let mut left = bytes.len();
        let mut begin = Some(frame);
        let mut due = None;
        loop {
            let piece = self.length(left.min(split.piece_bytes), split.ragged);
            left -= piece;
            let begins = self.busy_until;
            self.busy_until = begins.after(self.profile.occupancy(piece));
            let (through, flies) = (self.busy_until, self.profile.flight(&mut self.random).saturating_add(late));
            let flight = match begin.take() {
                Some(frame) => Flight::Begin(frame, piece),
                None => Flight::More(piece),
            };
            let next = match self.passage.as_deref_mut() {
                None => self.frames.push(through.after(flies), flight).map(|at| (at, Event::Frames(end))),
                Some(passage) => {
                    let piece = Piece { end, flight, bytes: piece, through, flies, n_passed: 0 };
                    passage.enter(begins, piece).map(|at| (at, Event::Enter(end)))
                }
            };
            due = due.or(next);
            if left == 0 {
                return due;
            }
        }
    }

    /// Takes the oldest frame that has begun to arrive.
    pub fn take(&mut self) -> Option<Frame> {
        let frame = self.arrived.pop_front()?;
        if self.arrived.is_empty() {
            self.arrived = VecDeque::new();
        }
        Some(frame)
    }

    /// How many bytes of a frame are here.
    pub fn arrived_of(&self, frame: &Frame) -> usize {
        let behind = self.delivered.saturating_sub(frame.start);
        usize::try_from(behind).map_or(frame.bytes.len(), |behind| behind.min(frame.bytes.len()))
    }

    pub fn is_busy(&self) -> bool {
        self.in_flight > 0 || !self.arrived.is_empty() || !self.inbox.is_empty() || self.post.len() > 0
    }

    fn length(&mut self, most: usize, ragged: bool) -> usize {
        if ragged && most > 1 { 1 + self.random.below(most as u64) as usize } else { most }
    }
}

impl std::fmt::Display for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} B of the window taken, {} items under way", self.in_flight, self.frames.len() + self.post.len())?;
        if let Some(Frame { channel, bytes, .. }) = self.arrived.front() {
            let arrived = self.arrived.len();
            write!(f, ", {arrived} frames arrived, the first of channel {} with {} B", channel.0, bytes.len())?;
        }
        match self.inbox.len() {
            0 => Ok(()),
            unread => write!(f, ", {unread} control events unread"),
        }
    }
}

/// How much of the window a frame takes; an empty one counts as a byte, so that their number is bounded too.
pub(super) fn window_cost(frame_bytes: usize) -> usize {
    frame_bytes.max(1)
}
