//! The sending half of a link: `README.md`, "sequence" and "placing".

use super::frame::{FrameKind, HEADER_BYTES, Header};
use super::immediate::Immediate;
use super::link::RdmaLink;
use super::placing::{Answer, Leaving, OFFER_BYTES_MAX, OFFER_BYTES_MIN, PLACED_BYTES_MAX, Way, WriteUnderWay};
use super::rail::Mode;
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
            return self.send_from_memory(place, message.len());
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

    /// The place of the channel's message among those that are sent from where they lie, if it is or becomes one.
    #[inline]
    fn leaving_of(&mut self, channel: Channel, stamp: Stamp, message: &[u8]) -> Option<usize> {
        if message.len() < OFFER_BYTES_MIN && self.leaving.is_empty() {
            return None;
        }
        let place = self.leaving.iter().position(|leaving| leaving.channel == channel);
        if place.is_some() || message.len() < OFFER_BYTES_MIN {
            return place;
        }
        let memory = self.memory.find(message.as_ptr(), message.len())?;
        self.leaving.push(Leaving {
            channel,
            stamp,
            memory,
            start: message.as_ptr() as usize,
            bytes: message.len(),
            accepted: 0,
            begun: 0,
            way: Way::Open,
            writes: Default::default(),
        });
        Some(self.leaving.len() - 1)
    }

    fn send_from_memory(&mut self, place: usize, rest: usize) -> Result<Option<usize>, LinkError> {
        let leaving = &self.leaving[place];
        let due = leaving.bytes - leaving.accepted;
        assert!(due == rest, "{:?}: {due} bytes are unsent, and {rest} were presented", leaving.channel);
        self.progress();
        if let Some(end) = &self.end {
            return Err(end.into());
        }
        for _ in 0..FRAMES_AT_ONCE {
            if !self.go_on(place)? {
                break;
            }
        }
        let (rails, leaving) = (&self.rails, &mut self.leaving[place]);
        let mut news = 0;
        while let Some(write) = leaving.writes.front()
            && rails[write.rail].has_ended(write.queue, write.request)
        {
            news += write.bytes;
            leaving.writes.pop_front();
        }
        leaving.accepted += news;
        if leaving.accepted == leaving.bytes {
            self.leaving.swap_remove(place);
        }
        Ok((news > 0).then_some(news))
    }

    /// Takes the next step with a message that is sent from where it lies; whether there was one.
    fn go_on(&mut self, place: usize) -> Result<bool, LinkError> {
        let Leaving { channel, stamp, begun, bytes, way, .. } = self.leaving[place];
        match way {
            Way::Open if begun == bytes => return Ok(false),
            Way::Open if bytes - begun < OFFER_BYTES_MIN => {
                self.leaving[place].way = Way::Slots { until: bytes };
                return Ok(true);
            }
            Way::Open => {
                if !self.has_room(0)? {
                    return Ok(false);
                }
                let (number, offered) = (self.window.next(), (bytes - begun).min(OFFER_BYTES_MAX));
                self.send_frame((channel, stamp, FrameKind::Offer), &[], offered as u32)?;
                self.leaving[place].way = Way::Offered(number);
            }
            Way::Offered(_) => return Ok(false),
            Way::Placed { until, .. } | Way::Slots { until } if begun == until => {
                self.leaving[place].way = Way::Open;
                return Ok(true);
            }
            Way::Placed { from, until, answer } => {
                let cut = (until - begun).min(PLACED_BYTES_MAX);
                if !self.has_room(usize::MAX / 2)? {
                    return Ok(false);
                }
                self.place(place, (begun, cut), (from, &answer))?;
            }
            Way::Slots { until } => {
                let cut = (until - begun).min(self.geometry().payload_bytes as usize);
                if !self.has_room(usize::MAX / 2)? {
                    return Ok(false);
                }
                self.send_in_place(place, (begun, cut))?;
            }
        }
        Ok(true)
    }

    /// Writes a stretch of a message to where it belongs, and a frame that says so behind it.
    fn place(
        &mut self,
        place: usize,
        (begun, bytes): (usize, usize),
        (from, answer): (usize, &Answer),
    ) -> Result<(), LinkError> {
        let (rail_number, queue) = self.way(usize::MAX / 2);
        self.turn = self.turn.wrapping_add(1);
        let leaving = &self.leaving[place];
        let whose = (leaving.channel, leaving.stamp, FrameKind::Placed);
        let rail = &mut self.rails[rail_number];
        let start = (leaving.start + begun) as *const u8;
        let piece = Piece { start, bytes: bytes as u32, key: leaving.memory.local_key(rail.port) };
        let target = (answer.address + (begun - from) as u64, answer.keys[rail_number]);
        // SAFETY: the memory is held until the write has ended (`Leaving`), and the caller of `send` doesn't change bytes
        // that have not been accepted.
        let posted = unsafe { rail.post(queue, target, None, Mode::Quiet, &[piece]) };
        posted.map_err(|error| self.fail(error))?;
        let (number, header) = (self.window.next(), self.header(whose, bytes as u32));
        let slot = self.order.slot(number);
        let (offset, immediate) = (self.geometry().header_offset(slot), Immediate::Frame(number as u32));
        let start = self.slab.stage(slot, &header, &[]);
        let rail = &mut self.rails[rail_number];
        let piece = Piece { start, bytes: HEADER_BYTES as u32, key: rail.slots.local_key() };
        // SAFETY: as in `send_frame`.
        let posted = unsafe { rail.write(queue, offset, immediate, Mode::Reported, &[piece]) };
        let request = posted.map_err(|error| self.fail(error))?;
        self.window.begin();
        traffic::placed(bytes);
        self.began(place, WriteUnderWay { rail: rail_number, queue, request, bytes });
        Ok(())
    }

    /// Sends a stretch of a message from where it lies through a slot.
    fn send_in_place(&mut self, place: usize, (begun, bytes): (usize, usize)) -> Result<(), LinkError> {
        let (rail_number, queue) = self.way(usize::MAX / 2);
        self.turn = self.turn.wrapping_add(1);
        let leaving = &self.leaving[place];
        let whose = (leaving.channel, leaving.stamp, FrameKind::Here);
        let payload_key = leaving.memory.local_key(self.rails[rail_number].port);
        let payload = (leaving.start + begun) as *const u8;
        let (number, header) = (self.window.next(), self.header(whose, bytes as u32));
        let slot = self.order.slot(number);
        let (offset, immediate) = (self.geometry().header_offset(slot), Immediate::Frame(number as u32));
        let start = self.slab.stage(slot, &header, &[]);
        let rail = &mut self.rails[rail_number];
        let pieces = [
            Piece { start, bytes: HEADER_BYTES as u32, key: rail.slots.local_key() },
            Piece { start: payload, bytes: bytes as u32, key: payload_key },
        ];
        // SAFETY: the header as in `send_frame`, the payload as in `place`.
        let posted = unsafe { rail.write(queue, offset, immediate, Mode::Reported, &pieces) };
        let request = posted.map_err(|error| self.fail(error))?;
        self.window.begin();
        traffic::gathered(bytes);
        self.began(place, WriteUnderWay { rail: rail_number, queue, request, bytes });
        Ok(())
    }

    fn began(&mut self, place: usize, write: WriteUnderWay) {
        let leaving = &mut self.leaving[place];
        leaving.begun += write.bytes;
        leaving.writes.push_back(write);
    }
}

/// The peer says where it wants what it was offered. An answer to what nobody sends any more is no news.
pub(super) fn take_answer(leaving: &mut [Leaving], answer: Answer) {
    let Some(leaving) = leaving.iter_mut().find(|leaving| leaving.way == Way::Offered(answer.offer)) else { return };
    let offered = (leaving.bytes - leaving.begun).min(OFFER_BYTES_MAX);
    let wanted = usize::try_from(answer.bytes).unwrap_or(usize::MAX).min(offered);
    leaving.way = match wanted {
        0 => Way::Slots { until: leaving.begun + offered },
        _ => Way::Placed { from: leaving.begun, until: leaving.begun + wanted, answer },
    };
}
