//! One rank's end of a simulated link: the link contract, over a wire each way.
//!
//! The frame that `head` shows has been moved out of the network into the link, so its bytes are lent without holding
//! the network's lock. The link also checks what the contract asks of its caller: a message that was accepted in part is
//! presented again from where it stopped, the same bytes at the same address, with the same stamp.

use super::control::{alive, connected};
use super::state::End;
use super::trace::Happening;
use super::wire::{Frame, Post, window_cost};
use super::{SimControl, SimNetwork};
use crate::control::ControlEvent;
use crate::link::{Channel, Head, LinkError, Stamp};

/// One end of a simulated link. Dropping it tells the peer that this rank left; what was sent before still arrives.
pub struct SimLink {
    control: SimControl,
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
        SimLink { control: SimControl::new(network, end), head: None, read: 0, shown: 0, unfinished: Vec::new() }
    }

    /// The rank at this end.
    #[must_use]
    pub fn me(&self) -> usize {
        self.network().lock().pair(self.end()).0
    }

    /// The rank at the other end.
    #[must_use]
    pub fn peer(&self) -> usize {
        self.network().lock().pair(self.end()).1
    }

    fn network(&self) -> &SimNetwork {
        &self.control.network
    }

    fn end(&self) -> End {
        self.control.end
    }

    /// The oldest frame that has arrived and isn't wholly read, with its bytes that are here by now.
    ///
    /// # Errors
    ///
    /// Once all that arrived whole is read: [`LinkError::Closed`] where the peer left, [`LinkError::Io`] where it died or
    /// the connection was cut. At once where this rank itself was killed.
    pub fn head(&mut self) -> Result<Option<Head<'_>>, LinkError> {
        let end = self.end();
        let mut state = self.control.network.lock();
        state.settle();
        alive(&state, end)?;
        if self.head.is_none() {
            (self.head, self.read) = (state.wire_made(end.other()).and_then(|wire| wire.take()), 0);
        }
        let Some(frame) = &self.head else {
            return connected(&state, end).map(|()| None);
        };
        let arrived = state.wire(end.other()).arrived_of(frame);
        if arrived < frame.bytes.len() {
            connected(&state, end)?;
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
            let end = self.end();
            let mut state = self.control.network.lock();
            if connected(&state, end).is_ok() {
                state.post(end, Post::Credit(window_cost(length)));
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
        let end = self.end();
        let mut state = self.control.network.lock();
        state.settle();
        connected(&state, end)?;
        let (now, pair, split) = (state.now(), state.pair(end), state.split);
        let late = state.faults.lateness(pair.0, now);
        let wire = state.wire(end);
        let Some(bytes) = wire.room(message.len(), split) else { return Ok(None) };
        if let Some((at, event)) = wire.launch(end, (channel, stamp), &message[..bytes], split, now, late) {
            state.plan(Some(at), event);
        }
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

    /// As [`SimControl::notify`].
    pub fn notify(&mut self, notice: &[u8]) {
        self.control.notify(notice);
    }

    /// As [`SimControl::control_event`].
    pub fn control_event(&mut self) -> Option<ControlEvent> {
        self.control.control_event()
    }

    /// As [`SimControl::leave`].
    pub fn leave(&mut self) {
        self.control.leave();
    }

    /// A second handle of this end, for its control plane.
    #[must_use]
    pub fn control(&self) -> SimControl {
        self.control.clone()
    }
}

impl Drop for SimLink {
    fn drop(&mut self) {
        self.control.leave();
        self.network().lock().retire(self.end());
    }
}

impl std::fmt::Debug for SimLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (me, peer) = self.network().lock().pair(self.end());
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
