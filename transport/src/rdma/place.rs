//! The receiving half of placing: answering offers, and reading what was placed.

use super::frame::FrameKind;
use super::link::RdmaLink;
use super::options::PORTS_MAX;
use super::placing::{Answer, Arriving};
use crate::link::Channel;

impl RdmaLink {
    /// If the head is an offer, asks for its bytes in slots, where they can be read; whether it was.
    pub(crate) fn show(&mut self) -> bool {
        let is_offer = self.front.is_some_and(|front| front.header.kind == FrameKind::Offer);
        is_offer && self.answer(None)
    }

    /// Answers the offer in front, if there is room for an answer, and gives its frame back; whether it did.
    pub(super) fn answer(&mut self, target: Option<&mut [u8]>) -> bool {
        let Some(front) = self.front.filter(|front| front.header.kind == FrameKind::Offer) else { return false };
        if !matches!(self.has_room(super::placing::ANSWER_BYTES), Ok(true)) {
            return false;
        }
        let (channel, stamp) = (front.header.channel, front.header.stamp);
        let mut answer = Answer { offer: self.order.next(), bytes: 0, address: 0, keys: [0; PORTS_MAX] };
        let is_placing = self.arriving.iter().any(|arriving| arriving.channel == channel);
        if let Some(target) = target.filter(|_| !is_placing) {
            let bytes = target.len().min(front.header.bytes as usize);
            let start = target.as_mut_ptr() as usize;
            if let Some(memory) = self.memory.find(target.as_ptr(), bytes) {
                (answer.bytes, answer.address) = (bytes as u64, start as u64);
                for (key, rail) in answer.keys.iter_mut().zip(&self.rails) {
                    *key = memory.remote_key(rail.port);
                }
                self.arriving.push(Arriving { channel, memory, start, bytes, read: 0 });
            }
        }
        let payload = answer.encode();
        // An error stays, and shows at the next look.
        let _ = self.send_frame((channel, stamp, FrameKind::Answer), &payload, payload.len() as u32);
        self.front = None;
        self.give_back();
        true
    }

    fn arriving_on(&self, channel: Channel) -> Option<&Arriving> {
        self.arriving.iter().find(|arriving| arriving.channel == channel)
    }

    /// Whether the peer may have placed so many more bytes.
    pub(super) fn may_be_placed(&self, channel: Channel, bytes: usize) -> bool {
        let left = self.arriving_on(channel).map_or(0, |arriving| arriving.bytes - arriving.read);
        0 < bytes && bytes <= left
    }

    /// Whether the next bytes that the peer has placed lie there.
    pub(super) fn is_placed_at(&self, channel: Channel, start: *const u8) -> bool {
        self.arriving_on(channel).is_some_and(|arriving| arriving.start + arriving.read == start as usize)
    }

    /// The next bytes that the peer has placed.
    pub(super) fn placed_bytes(&self, channel: Channel, bytes: usize) -> &[u8] {
        let arriving = self.arriving_on(channel).expect("looked at when the frame came to the front");
        // SAFETY: the frame says that the peer has written them and is done; the owner of the memory waits for them, and
        // writes them only through the link.
        unsafe { arriving.memory.bytes(arriving.start + arriving.read, bytes) }
    }

    pub(super) fn placed_are_read(&mut self, channel: Channel, bytes: usize) {
        let place = self.arriving.iter().position(|arriving| arriving.channel == channel);
        let place = place.expect("looked at when the frame came to the front");
        self.arriving[place].read += bytes;
        if self.arriving[place].read == self.arriving[place].bytes {
            self.arriving.swap_remove(place);
        }
    }
}
