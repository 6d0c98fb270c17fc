//! The sending half of a link: `README.md`, "sequence", "in place" and "fetching".

use super::frame::{FrameKind, HEADER_BYTES, Header};
use super::immediate::Immediate;
use super::link::RdmaLink;
use super::offer::{Begun, IN_PLACE_BYTES_MIN, Leaving, OFFER_BYTES_MAX, OFFER_BYTES_MIN, SOURCE_BYTES, Source};
use super::options::PORTS_MAX;
use super::rail::Mode;
use super::registration::Use;
use super::traffic;
use super::verbs::Piece;
use crate::link::{Channel, LinkError, Stamp};

/// The most frames of a message that one call to `send` begins, so that the caller can receive in between. A device that is a
/// program of the kernel's moves their bytes before the call returns.
const FRAMES_AT_ONCE: usize = 2;

impl RdmaLink {
    /// Sends from the front of `message`; `None` while there is no room, or while its bytes are still being read.
    ///
    /// # Panics
    ///
    /// If the channel has an unfinished message of another length.
    #[inline]
    pub(crate) fn send(&mut self, channel: Channel, stamp: Stamp, message: &[u8]) -> Result<Option<usize>, LinkError> {
        if let Some(place) = self.leaving_of(channel, stamp, message) {
            return self.send_from_there(place, message);
        }
        let mut sent = 0;
        for _ in 0..FRAMES_AT_ONCE {
            let bytes = (message.len() - sent).min(self.geometry().payload_bytes as usize);
            if !self.has_room(bytes)? {
                return Ok((sent > 0).then_some(sent));
            }
            self.send_frame((channel, stamp, FrameKind::Here), &message[sent..sent + bytes], bytes as u32)?;
            traffic::copied_in(bytes);
            sent += bytes;
            if sent == message.len() {
                break;
            }
        }
        Ok(Some(sent))
    }

    /// Whether one more frame with a payload of that many bytes can be sent; completions are looked at only if not.
    #[inline]
    pub(super) fn has_room(&mut self, bytes: usize) -> Result<bool, LinkError> {
        let (rail, queue) = self.way(bytes);
        let slots = self.geometry().slots;
        let free = |link: &RdmaLink| {
            link.window.room() > 0 && link.rails[rail].has_room(queue, slots) && link.rails[0].has_room(0, slots)
        };
        if self.end.is_none() && free(self) {
            return Ok(true);
        }
        self.progress();
        match &self.end {
            Some(end) => Err(end.into()),
            None => Ok(free(self)),
        }
    }

    /// The rail and queue for a frame with a payload of that many bytes: short ones take the first.
    #[inline]
    fn way(&self, bytes: usize) -> (usize, usize) {
        if bytes + HEADER_BYTES <= self.inline_bytes {
            return (0, 0);
        }
        // Rails first: the next queue pair of the same port is worth less than the next port.
        let rail = self.turn % self.rails.len();
        (rail, self.turn / self.rails.len() % self.rails[rail].queues.len())
    }

    #[inline]
    fn header(&mut self, (channel, stamp, kind): (Channel, Stamp, FrameKind), bytes: u32) -> Header {
        Header { channel, stamp, credit: self.owed.tell(), bytes, kind }
    }

    /// Sends a frame whose header speaks of `bytes`.
    #[inline]
    pub(super) fn send_frame(
        &mut self,
        whose: (Channel, Stamp, FrameKind),
        payload: &[u8],
        bytes: u32,
    ) -> Result<(), LinkError> {
        let (rail, queue) = self.way(payload.len());
        let header = self.header(whose, bytes);
        let number = self.window.next();
        let slot = self.order.slot(number);
        let (offset, immediate) = (self.geometry().header_offset(slot), Immediate::Frame(number as u32));
        let posted = if payload.len() + HEADER_BYTES <= self.inline_bytes {
            let header = header.encode();
            let piece = |bytes: &[u8]| Piece { start: bytes.as_ptr(), bytes: bytes.len() as u32, key: 0 };
            let pieces = [piece(&header), piece(payload)];
            let used = if payload.is_empty() { 1 } else { 2 };
            // SAFETY: both can be read now.
            unsafe { self.rails[rail].write(queue, offset, immediate, Mode::Inline, &pieces[..used]) }
        } else {
            let start = self.slab.stage(slot, &header, payload);
            let rail = &mut self.rails[rail];
            self.turn = self.turn.wrapping_add(1);
            let piece = Piece { start, bytes: (payload.len() + HEADER_BYTES) as u32, key: rail.slots.local_key() };
            // SAFETY: the slab outlives the rails; the slot is staged again only with a credit for it, and the peer gives
            // that when this write has arrived.
            unsafe { rail.write(queue, offset, immediate, Mode::Quiet, &[piece]) }
        };
        posted.map_err(|error| self.fail(error))?;
        self.window.begin();
        Ok(())
    }

    /// The place of the channel's message among those that devices read where they lie, if it is or becomes one.
    #[inline]
    fn leaving_of(&mut self, channel: Channel, stamp: Stamp, message: &[u8]) -> Option<usize> {
        if message.len() < IN_PLACE_BYTES_MIN && self.leaving.is_empty() {
            return None;
        }
        let place = self.leaving.iter().position(|leaving| leaving.channel == channel);
        let is_possible = || match message.len() {
            ..IN_PLACE_BYTES_MIN => false,
            IN_PLACE_BYTES_MIN..OFFER_BYTES_MIN => message.len() <= self.geometry().payload_bytes as usize,
            OFFER_BYTES_MIN.. => self.rails.iter().all(|rail| rail.reads),
        };
        if place.is_some() || !is_possible() {
            return place;
        }
        let memory = self.memory.find(message.as_ptr(), message.len(), Use::Source)?;
        self.leaving.push(Leaving {
            channel,
            stamp,
            memory,
            start: message.as_ptr() as usize,
            bytes: message.len(),
            accepted: 0,
            begun: None,
        });
        Some(self.leaving.len() - 1)
    }

    /// Has devices read what is left of a message; `None` until they have.
    fn send_from_there(&mut self, place: usize, rest: &[u8]) -> Result<Option<usize>, LinkError> {
        let leaving = &self.leaving[place];
        let (channel, due) = (leaving.channel, leaving.bytes - leaving.accepted);
        assert!(due == rest.len(), "{channel:?}: {due} bytes are unsent, and {} were presented", rest.len());
        if leaving.begun.is_none() {
            let begun =
                if leaving.bytes < OFFER_BYTES_MIN { self.write_in_place(place, rest) } else { self.offer(place, due) };
            self.leaving[place].begun = begun?;
            // A device that is a program of the kernel's has read it by now.
            if !matches!(self.leaving[place].begun, Some(Begun::Written { .. })) {
                return Ok(None);
            }
        }
        self.progress();
        let (has_ended, bytes) = match self.leaving[place].begun.expect("begun above") {
            Begun::Offered { frame, bytes } => (self.window.has_come_back(frame), bytes),
            Begun::Written { rail, queue, request } => (self.rails[rail].has_ended(queue, request), due),
        };
        if !has_ended {
            return self.end.as_ref().map_or(Ok(None), |end| Err(end.into()));
        }
        let leaving = &mut self.leaving[place];
        (leaving.accepted, leaving.begun) = (leaving.accepted + bytes, None);
        if leaving.accepted == leaving.bytes {
            self.leaving.swap_remove(place);
        }
        Ok(Some(bytes))
    }

    /// Writes a message to a slot from where it lies, if there is room.
    fn write_in_place(&mut self, place: usize, message: &[u8]) -> Result<Option<Begun>, LinkError> {
        if !self.has_room(message.len())? {
            return Ok(None);
        }
        let (rail, queue) = self.way(message.len());
        let leaving = &self.leaving[place];
        let (whose, key) =
            ((leaving.channel, leaving.stamp, FrameKind::Here), leaving.memory.local_key(self.rails[rail].port));
        let header = self.header(whose, message.len() as u32);
        let number = self.window.next();
        let slot = self.order.slot(number);
        let (offset, immediate) = (self.geometry().header_offset(slot), Immediate::Frame(number as u32));
        let start = self.slab.stage(slot, &header, &[]);
        let there = &mut self.rails[rail];
        self.turn = self.turn.wrapping_add(1);
        let pieces = [
            Piece { start, bytes: HEADER_BYTES as u32, key: there.slots.local_key() },
            Piece { start: message.as_ptr(), bytes: message.len() as u32, key },
        ];
        // SAFETY: of the slot as in `send_frame`; the caller keeps the message as it is until it is accepted, and it stays
        // registered as long as the link knows it (`Found`).
        let posted = unsafe { there.write(queue, offset, immediate, Mode::Reported, &pieces) };
        let request = posted.map_err(|error| self.fail(error))?;
        self.window.begin();
        Ok(Some(Begun::Written { rail, queue, request }))
    }

    /// Offers what is left of a message, `due` bytes, if there is room.
    fn offer(&mut self, place: usize, due: usize) -> Result<Option<Begun>, LinkError> {
        if !self.has_room(SOURCE_BYTES)? {
            return Ok(None);
        }
        let (leaving, bytes) = (&self.leaving[place], due.min(OFFER_BYTES_MAX));
        let mut source = Source { address: (leaving.start + leaving.accepted) as u64, keys: [0; PORTS_MAX] };
        for (key, rail) in source.keys.iter_mut().zip(&self.rails) {
            *key = leaving.memory.remote_key(rail.port);
        }
        let (whose, frame) = ((leaving.channel, leaving.stamp, FrameKind::Offer), self.window.next());
        self.send_frame(whose, &source.encode(), bytes as u32)?;
        Ok(Some(Begun::Offered { frame, bytes }))
    }
}
