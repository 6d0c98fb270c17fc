//! The control plane of one end of a simulated link, and what an end knows of the other.

use std::io;

use super::SimNetwork;
use super::state::{End, State};
use super::trace::{At, Happening};
use super::wire::{Post, Standing};
use crate::control::ControlEvent;
use crate::link::LinkError;

/// The most notices that may be under way or unread in one direction.
const NOTICES_MAX: usize = 4096;

/// A handle of one end of a simulated link: notices, leaving, news of the peer. The end belongs to its
/// [`super::SimLink`], which leaves when it is dropped.
#[derive(Clone)]
pub struct SimControl {
    pub(super) network: SimNetwork,
    pub(super) end: End,
}

impl SimControl {
    pub(super) fn new(network: SimNetwork, end: End) -> SimControl {
        SimControl { network, end }
    }

    /// Sends a notice to the peer, beside the frames and perhaps ahead of them. It is lost where the peer is known to be
    /// gone, and where 4,096 are on their way or unread.
    pub fn notify(&mut self, notice: &[u8]) {
        let mut state = self.network.lock();
        state.settle();
        let (now, (me, peer)) = (state.now(), state.pair(self.end));
        let refused = connected(&state, self.end).is_err() || state.faults.loses_notice(me, peer, now) || {
            let wire = state.wire(self.end);
            wire.post.len() + wire.inbox.len() >= NOTICES_MAX
        };
        if refused {
            return state.trace.note(now, (me, peer), Happening::NoticeLost(notice.len()));
        }
        state.trace.note(now, (me, peer), Happening::NoticeSent(notice.len()));
        state.post(self.end, Post::Control(ControlEvent::Notice(notice.to_vec())));
    }

    /// The oldest control event that has arrived and wasn't reported yet.
    pub fn control_event(&mut self) -> Option<ControlEvent> {
        let mut state = self.network.lock();
        state.settle();
        state.wire_made(self.end.other())?.inbox.pop_front()
    }

    /// Tells the peer that this rank leaves. What was sent before still arrives; nothing can be sent or read any more.
    pub fn leave(&mut self) {
        let mut state = self.network.lock();
        state.settle();
        if connected(&state, self.end).is_ok() {
            let (now, pair) = (state.now(), state.pair(self.end));
            let late = state.faults.lateness(pair.0, now);
            let wire = state.wire(self.end);
            let arrival = now.after(wire.profile.flight(&mut wire.random)).after(late);
            state.end_wire(self.end, arrival, Standing::Left);
            state.post(self.end, Post::Control(ControlEvent::Left));
            state.trace.note(now, pair, Happening::LinkDropped);
        }
        state.connections[self.end.connection as usize].left[usize::from(self.end.side)] = true;
    }
}

impl std::fmt::Debug for SimControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (me, peer) = self.network.lock().pair(self.end);
        f.debug_struct("SimControl").field("me", &me).field("peer", &peer).finish_non_exhaustive()
    }
}

/// Whether this end can be used at all: its rank lives and hasn't left.
pub(super) fn alive(state: &State, end: End) -> Result<(), LinkError> {
    let aborted = |text: String| Err(LinkError::Io(io::Error::new(io::ErrorKind::ConnectionAborted, text)));
    if state.connections[end.connection as usize].left[usize::from(end.side)] {
        return aborted("this rank has left the connection".into());
    }
    match state.faults.deaths.get(&state.pair(end).0) {
        None => Ok(()),
        Some(&death) => aborted(format!("this rank was killed at {} (simulated)", At(death))),
    }
}

/// Whether, as far as is known at this end, both are there.
pub(super) fn connected(state: &State, end: End) -> Result<(), LinkError> {
    alive(state, end)?;
    let text = match state.standing(end) {
        Standing::Open => return Ok(()),
        Standing::Left => return Err(LinkError::Closed),
        Standing::Killed(death) => format!("connection reset: the peer was killed at {} (simulated)", At(death)),
        Standing::Cut(cut) => format!("connection reset: cut at {} (simulated)", At(cut)),
    };
    Err(LinkError::Io(io::Error::new(io::ErrorKind::ConnectionReset, text)))
}
