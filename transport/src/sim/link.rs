//! One rank's end of a simulated link: the link contract, over a wire each way.
//!
//! The frame that `head` shows has been moved out of the network into the link, so its bytes are lent without holding
//! the network's lock. The link also checks what the contract asks of its caller: a message that was accepted in part is
//! presented again from where it stopped, the same bytes at the same address, with the same stamp.

use std::io;

use super::SimNetwork;
use super::state::{End, Event, State};
use super::trace::{At, Happening};
use super::wire::{Flight, Frame, Post, Standing, window_cost};
use crate::control::ControlEvent;
use crate::link::{Channel, Head, LinkError, Stamp};

/// The most notices that may be under way or unread in one direction.
const NOTICES_MAX: usize = 4096;

/// One end of a simulated link. Dropping it tells the peer that this rank left; what was sent before still arrives.
pub struct SimLink {
    network: SimNetwork,
    end: End,
    head: Option<Frame>,
    /// Bytes of the head that were read, and of those behind them that the last call showed.
    read: usize,
    shown: usize,
    unfinished: Vec<Unfinished>,
}

/// A message of which a part was accepted.
struct Unfinished {
    channel: Channel,
    stamp: Stamp,
    address: usize,
    left: usize,
}

impl SimLink {
    pub(super) fn new(network: SimNetwork, end: End) -> SimLink {
        SimLink { network, end, head: None, read: 0, shown: 0, unfinished: Vec::new() }
    }

    /// The rank at this end.
    #[must_use]
    pub fn me(&self) -> usize {
        self.network.lock().pair(self.end).0
    }

    /// The rank at the other end.
    #[must_use]
    pub fn peer(&self) -> usize {
        self.network.lock().pair(self.end).1
    }

    /// The oldest frame that has arrived and isn't wholly read, with its bytes that are here by now.
    ///
    /// # Errors
    ///
    /// Once all that arrived whole is read: [`LinkError::Closed`] where the peer left, [`LinkError::Io`] where it died or
    /// the connection was cut. At once where this rank itself was killed.
    pub fn head(&mut self) -> Result<Option<Head<'_>>, LinkError> {
        let mut state = self.network.lock();
        state.settle();
        alive(&state, self.end)?;
        if self.head.is_none() {
            (self.head, self.read) = (state.wire_made(self.end.other()).and_then(|wire| wire.take()), 0);
        }
        let Some(frame) = &self.head else {
            return connected(&state, self.end).map(|()| None);
        };
        let arrived = state.wire(self.end.other()).arrived_of(frame);
        if arrived < frame.bytes.len() {
            connected(&state, self.end)?;
        }
        self.shown = arrived - self.read;
        Ok(Some(Head {
            channel: frame.channel,
            stamp: frame.stamp,
            left: frame.bytes.len() - self.read,
            bytes: &frame.bytes[self.read..arrived],
        }))
    }

    /// Gives back `bytes` from the front of what `head` showed, and the frame if that was its last; an empty frame is
    /// given back by `advance(0)`.
    ///
    /// # Panics
    ///
    /// Where `bytes` is more than `head` last showed, or no frame was shown.
    pub fn advance(&mut self, bytes: usize) {
        let frame = self.head.as_ref().expect("advance follows a head that showed a frame");
        assert!(bytes <= self.shown, "advance({bytes}) after a head of {} B", self.shown);
        self.read += bytes;
        self.shown -= bytes;
        let length = frame.bytes.len();
        if self.read == length {
            self.head = None;
            let mut state = self.network.lock();
            if alive(&state, self.end).and_then(|()| connected(&state, self.end)).is_ok() {
                state.post(self.end, Post::Credit(window_cost(length)));
            }
        }
    }

    /// Copies what is here of the oldest frame, up to `target`'s length, and gives that back. Answers how many bytes:
    /// zero where no frame is here, and for an empty frame, which stays until `advance(0)`.
    ///
    /// # Errors
    ///
    /// Those of [`SimLink::head`].
    pub fn recv_into(&mut self, target: &mut [u8]) -> Result<usize, LinkError> {
        let bytes = match self.head()? {
            Some(head) => {
                let bytes = head.bytes.len().min(target.len());
                target[..bytes].copy_from_slice(&head.bytes[..bytes]);
                bytes
            }
            None => 0,
        };
        if bytes > 0 {
            self.advance(bytes);
        }
        Ok(bytes)
    }

    /// Accepts as many bytes from the front of `message` as make one frame and fit the window; `None` where nothing, not
    /// even an empty frame, fits.
    ///
    /// # Errors
    ///
    /// [`LinkError::Closed`] once the peer's leaving has arrived, [`LinkError::Io`] once its death or a cut has, or where
    /// this rank itself was killed. Until then what is sent vanishes.
    ///
    /// # Panics
    ///
    /// Where a message of this channel was accepted in part and `message` isn't the rest of it.
    pub fn send(&mut self, channel: Channel, stamp: Stamp, message: &[u8]) -> Result<Option<usize>, LinkError> {
        let unfinished = self.unfinished.iter().position(|unfinished| unfinished.channel == channel);
        if let Some(index) = unfinished {
            self.unfinished[index].check(stamp, message);
        }
        let mut state = self.network.lock();
        state.settle();
        alive(&state, self.end)?;
        connected(&state, self.end)?;
        let (now, pair, split) = (state.now(), state.pair(self.end), state.split);
        let late = state.faults.lateness(pair.0, now);
        let wire = state.wire(self.end);
        let Some(bytes) = wire.room(message.len(), split) else { return Ok(None) };
        let due = wire.launch((channel, stamp), &message[..bytes], split, now, late);
        state.plan(due, Event::Frames(self.end));
        state.trace.note(now, pair, Happening::FrameSent(channel, stamp, bytes));
        drop(state);

        let left = message.len() - bytes;
        let rest = Unfinished { channel, stamp, address: message[bytes..].as_ptr() as usize, left };
        match unfinished {
            Some(index) if left == 0 => drop(self.unfinished.swap_remove(index)),
            Some(index) => self.unfinished[index] = rest,
            None if left == 0 => {}
            None => self.unfinished.push(rest),
        }
        Ok(Some(bytes))
    }

    /// Sends a notice to the peer, beside the frames and perhaps ahead of them.
    ///
    /// # Errors
    ///
    /// Those of [`SimLink::send`], and [`LinkError::Io`] where 4,096 notices are on their way or unread.
    pub fn notify(&mut self, notice: &[u8]) -> Result<(), LinkError> {
        let mut state = self.network.lock();
        state.settle();
        alive(&state, self.end)?;
        connected(&state, self.end)?;
        let (now, (me, peer)) = (state.now(), state.pair(self.end));
        if state.faults.loses_notice(me, peer, now) {
            state.trace.note(now, (me, peer), Happening::NoticeLost(notice.len()));
            return Ok(());
        }
        let wire = state.wire(self.end);
        if wire.post.len() + wire.inbox.len() >= NOTICES_MAX {
            let text = format!("{NOTICES_MAX} notices to rank {peer} are unread");
            return Err(LinkError::Io(io::Error::new(io::ErrorKind::WouldBlock, text)));
        }
        state.trace.note(now, (me, peer), Happening::NoticeSent(notice.len()));
        state.post(self.end, Post::Control(ControlEvent::Notice(notice.to_vec())));
        Ok(())
    }

    /// The oldest control event that has arrived and wasn't reported yet.
    pub fn control_event(&mut self) -> Option<ControlEvent> {
        let mut state = self.network.lock();
        state.settle();
        state.wire_made(self.end.other())?.inbox.pop_front()
    }
}

impl Drop for SimLink {
    fn drop(&mut self) {
        let mut state = self.network.lock();
        state.settle();
        let (now, pair) = (state.now(), state.pair(self.end));
        let told = alive(&state, self.end).and_then(|()| connected(&state, self.end)).is_ok();
        if told {
            let late = state.faults.lateness(pair.0, now);
            let wire = state.wire(self.end);
            let arrival = now.after(wire.profile.flight(&mut wire.random)).after(late);
            let due = wire.frames.push(arrival, Flight::End(Standing::Left));
            state.plan(due, Event::Frames(self.end));
            state.post(self.end, Post::Control(ControlEvent::Left));
            state.trace.note(now, pair, Happening::LinkDropped);
        }
        let End { connection, side } = self.end;
        state.connections[connection as usize].dropped[usize::from(side)] = true;
        state.retire(connection);
    }
}

impl std::fmt::Debug for SimLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (me, peer) = self.network.lock().pair(self.end);
        f.debug_struct("SimLink").field("me", &me).field("peer", &peer).finish_non_exhaustive()
    }
}

impl Unfinished {
    fn check(&self, stamp: Stamp, message: &[u8]) {
        assert!(
            message.len() == self.left && message.as_ptr() as usize == self.address && stamp == self.stamp,
            "a message of channel {} was accepted up to its last {} B at {:#x} under stamp {:x?}; what follows is {} B at \
             {:p} under stamp {:x?}, which isn't the rest of it",
            self.channel.0,
            self.left,
            self.address,
            self.stamp.0,
            message.len(),
            message.as_ptr(),
            stamp.0,
        );
    }
}

/// Whether the rank at this end lives.
fn alive(state: &State, end: End) -> Result<(), LinkError> {
    match state.faults.deaths.get(&state.pair(end).0) {
        None => Ok(()),
        Some(&death) => {
            let text = format!("this rank was killed at {} (simulated)", At(death));
            Err(LinkError::Io(io::Error::new(io::ErrorKind::ConnectionAborted, text)))
        }
    }
}

/// Whether, as far as is known at this end, the other is there.
fn connected(state: &State, end: End) -> Result<(), LinkError> {
    let text = match state.connections[end.connection as usize].standing[usize::from(end.side)] {
        Standing::Open => return Ok(()),
        Standing::Left => return Err(LinkError::Closed),
        Standing::Killed(death) => format!("connection reset: the peer was killed at {} (simulated)", At(death)),
        Standing::Cut(cut) => format!("connection reset: cut at {} (simulated)", At(cut)),
    };
    Err(LinkError::Io(io::Error::new(io::ErrorKind::ConnectionReset, text)))
}
