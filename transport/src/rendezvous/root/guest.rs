//! One connection at the root: from its first byte to the answer.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use super::super::handshake::{Acceptor, HandshakeError};
use super::super::messages::Introduction;
use super::super::{Credentials, MAX_ENTRY, RankIdentity, socket, sys};

pub(super) struct Guest {
    pub(super) socket: OwnedFd,
    pub(super) address: String,
    pub(super) since: Instant,
    pub(super) stage: Stage,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// The answer and how much of it has been sent.
    answer: Option<(Arc<[u8]>, usize)>,
}

pub(super) enum Stage {
    /// At the handshake.
    Greeting(Acceptor),
    /// Past it, bringing the length of its bytes.
    Announcing(Introduction),
    /// Bringing so many bytes.
    Bringing(Introduction, usize),
    /// Waiting for the answer, if it hasn't been sent yet.
    Arrived(RankIdentity),
}

/// What a guest's turn came to.
pub(super) enum Event {
    Nothing,
    /// Not one of ours, or broken before it arrived.
    Stranger(String),
    /// A rank has brought its bytes.
    Came(Introduction, Vec<u8>),
    /// An arrived rank is gone.
    Gone(String),
}

impl Guest {
    pub(super) fn new(socket: OwnedFd, address: String, credentials: Credentials) -> Guest {
        let stage = Stage::Greeting(Acceptor::new(credentials, sys::random()));
        let (inbox, outbox) = (Vec::new(), Vec::new());
        Guest { socket, address, since: Instant::now(), stage, inbox, outbox, answer: None }
    }

    /// Whether the guest has arrived.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.stage, Stage::Arrived(_))
    }

    pub(super) fn is_answered(&self) -> bool {
        self.answer.is_some()
    }

    pub(super) fn has_more_to_send(&self) -> bool {
        let unsent = self.answer.as_ref().is_some_and(|(bytes, sent)| *sent < bytes.len());
        !self.outbox.is_empty() || unsent
    }

    /// Begins to send the answer; whether that was due.
    pub(super) fn send_answer(&mut self, bytes: &Arc<[u8]>) -> bool {
        if !self.is_settled() || self.is_answered() {
            return false;
        }
        self.answer = Some((Arc::clone(bytes), 0));
        // What fails here fails again, and is seen, when the socket is polled.
        let _ = self.send();
        true
    }

    /// Moves what can be moved without waiting.
    pub(super) fn progress(&mut self) -> Event {
        match self.try_progress() {
            Ok(event) => event,
            Err(error) if self.is_settled() => Event::Gone(error.to_string()),
            Err(error) => Event::Stranger(error.to_string()),
        }
    }

    fn try_progress(&mut self) -> Result<Event, HandshakeError> {
        self.send()?;
        loop {
            while self.inbox.len() < self.wanted() {
                let held = self.inbox.len();
                let mut buffer = [0; 4096];
                let room = (self.wanted() - held).min(buffer.len());
                match socket::read_now(self.socket.as_fd(), &mut buffer[..room])? {
                    Some(0) => return Err(HandshakeError::Closed),
                    Some(count) => self.inbox.extend_from_slice(&buffer[..count]),
                    None => return Ok(Event::Nothing),
                }
                if let Stage::Greeting(acceptor) = &self.stage {
                    acceptor.glance(&self.inbox)?;
                }
            }
            let message = std::mem::take(&mut self.inbox);
            if let Some(event) = self.take(message)? {
                return Ok(event);
            }
        }
    }

    fn wanted(&self) -> usize {
        match &self.stage {
            Stage::Greeting(acceptor) => acceptor.wanted(),
            Stage::Announcing(_) => 4,
            Stage::Bringing(_, length) => *length,
            Stage::Arrived(_) => 1,
        }
    }

    fn take(&mut self, message: Vec<u8>) -> Result<Option<Event>, HandshakeError> {
        match &mut self.stage {
            Stage::Greeting(acceptor) => {
                let reply = acceptor.take(&message);
                self.outbox.extend(reply.send);
                self.send()?;
                if let Some(outcome) = reply.outcome {
                    let introduction = Introduction::decode(&outcome?);
                    let introduction = introduction.ok_or(HandshakeError::Protocol("it didn't introduce itself"))?;
                    self.stage = Stage::Announcing(introduction);
                }
            }
            Stage::Announcing(introduction) => {
                let bytes = u32::from_le_bytes(message[..].try_into().expect("4 bytes")) as usize;
                if MAX_ENTRY < bytes {
                    return Err(HandshakeError::TooLong { bytes, most: MAX_ENTRY });
                }
                self.stage = Stage::Bringing(introduction.clone(), bytes);
            }
            Stage::Bringing(introduction, _) => return Ok(Some(Event::Came(introduction.clone(), message))),
            Stage::Arrived(_) => return Err(HandshakeError::Protocol("it spoke when it should have waited")),
        }
        Ok(None)
    }

    fn send(&mut self) -> Result<(), HandshakeError> {
        while !self.outbox.is_empty() {
            match socket::write_now(self.socket.as_fd(), &self.outbox)? {
                Some(count) => drop(self.outbox.drain(..count)),
                None => return Ok(()),
            }
        }
        while let Some((bytes, sent)) = &mut self.answer
            && *sent < bytes.len()
        {
            match socket::write_now(self.socket.as_fd(), &bytes[*sent..])? {
                Some(count) => *sent += count,
                None => return Ok(()),
            }
        }
        Ok(())
    }
}
