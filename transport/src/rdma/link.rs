//! A link over InfiniBand or RoCE: frames are written into the peer's slots, and read there.

use std::os::fd::BorrowedFd;

use super::errors::{FLUSHED, RdmaError};
use super::frame::{FrameKind, HEADER_BYTES, Header};
use super::immediate::Immediate;
use super::order::{Order, OrderError};
use super::rail::{Failure, Rail};
use super::slab::{Geometry, Slab};
use super::verbs::Piece;
use super::window::{Owed, Window};
use crate::clock::{Clock, Time};
use crate::link::{Channel, Head, LinkError, Stamp};

/// The most frames of a message that one call to `send` begins, so that the caller can receive in between.
const FRAMES_AT_ONCE: usize = 8;
/// How long a leaving end waits until the peer's device has what was sent.
const FAREWELL: std::time::Duration = std::time::Duration::from_secs(2);

/// A link over InfiniBand or RoCE.
///
/// Fields are dropped in order: what refers to the slots goes before them.
pub(crate) struct RdmaLink {
    rails: Vec<Rail>,
    slab: Slab,
    inline_bytes: usize,
    window: Window,
    owed: Owed,
    order: Order,
    /// The frame that is being read.
    front: Option<Front>,
    end: Option<End>,
    /// Where the next large frame goes: rails and their queues by turns.
    turn: usize,
    /// The peer has gone, as its control path says: there is nobody to take leave of.
    peer_gone: bool,
    farewell_said: bool,
}

#[derive(Clone, Copy, Debug)]
struct Front {
    header: Header,
    slot: usize,
    read: usize,
}

/// Why the link can't go on.
#[derive(Clone, Debug)]
enum End {
    Closed,
    Broken(RdmaError),
    Protocol(String),
}

impl From<&End> for LinkError {
    fn from(end: &End) -> LinkError {
        match end {
            End::Closed => LinkError::Closed,
            End::Broken(error) => LinkError::Rdma(error.clone()),
            End::Protocol(text) => LinkError::Protocol(text.clone()),
        }
    }
}

impl RdmaLink {
    /// A link over connected rails, whose slots are cut alike at both ends.
    pub(super) fn new(rails: Vec<Rail>, slab: Slab) -> RdmaLink {
        let slots = u64::from(slab.geometry().slots);
        RdmaLink {
            inline_bytes: rails.iter().map(Rail::inline_bytes).min().unwrap_or(0),
            rails,
            slab,
            window: Window::new(slots),
            owed: Owed::new(slots),
            order: Order::new(slots as usize as u64),
            front: None,
            end: None,
            turn: 0,
            peer_gone: false,
            farewell_said: false,
        }
    }

    fn geometry(&self) -> Geometry {
        self.slab.geometry()
    }

    /// Sends from the front of `message`: `README.md`, "sequence".
    #[inline]
    pub(crate) fn send(&mut self, channel: Channel, stamp: Stamp, message: &[u8]) -> Result<Option<usize>, LinkError> {
        let mut sent = 0;
        for _ in 0..FRAMES_AT_ONCE {
            let bytes = (message.len() - sent).min(self.geometry().payload_bytes as usize);
            if !self.has_room(bytes)? {
                return Ok((sent > 0).then_some(sent));
            }
            self.send_frame(channel, stamp, &message[sent..sent + bytes])?;
            sent += bytes;
            if sent == message.len() {
                break;
            }
        }
        Ok(Some(sent))
    }

    /// Whether one more frame of that many bytes can be sent; completions are looked at only if not.
    #[inline]
    fn has_room(&mut self, bytes: usize) -> Result<bool, LinkError> {
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

    /// The rail and queue for a frame of that many bytes: short ones take the first.
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
    fn send_frame(&mut self, channel: Channel, stamp: Stamp, payload: &[u8]) -> Result<(), LinkError> {
        let number = self.window.next();
        let slot = self.order.slot(number);
        let (credit, bytes) = (self.owed.tell(), payload.len() as u32);
        let header = Header { channel, stamp, credit, bytes, kind: FrameKind::Here };
        let (offset, immediate) = (self.geometry().header_offset(slot), Immediate::Frame(number as u32).encode());
        let (rail, queue) = self.way(payload.len());
        let posted = if payload.len() + HEADER_BYTES <= self.inline_bytes {
            let header = header.encode();
            let piece = |bytes: &[u8]| Piece { start: bytes.as_ptr(), bytes: bytes.len() as u32, key: 0 };
            let pieces = [piece(&header), piece(payload)];
            let used = if payload.is_empty() { 1 } else { 2 };
            // SAFETY: both can be read now.
            unsafe { self.rails[rail].write(queue, offset, immediate, (true, false), &pieces[..used]) }
        } else {
            let start = self.slab.stage(slot, &header, payload);
            let rail = &mut self.rails[rail];
            self.turn = self.turn.wrapping_add(1);
            let piece = Piece { start, bytes: bytes + HEADER_BYTES as u32, key: rail.slots.local_key() };
            // SAFETY: the slab outlives the rails; the slot is staged again only with a credit for it, and the peer gives
            // that when this write has arrived.
            unsafe { rail.write(queue, offset, immediate, (false, false), &[piece]) }
        };
        posted.map_err(|error| self.fail(error))?;
        self.window.begin();
        Ok(())
    }

    fn fail(&mut self, error: RdmaError) -> LinkError {
        LinkError::from(&*self.end.get_or_insert(End::Broken(error)))
    }

    /// The oldest frame that isn't wholly read.
    #[inline]
    pub(crate) fn head(&mut self) -> Result<Option<Head<'_>>, LinkError> {
        if self.front.is_none() && !self.find_front() {
            self.progress();
            if !self.find_front() {
                if self.order.is_ended() {
                    return Err(LinkError::Closed);
                }
                return self.end.as_ref().map_or(Ok(None), |end| Err(end.into()));
            }
        }
        let Front { header, slot, read } = self.front.expect("found above");
        let bytes = &self.slab.payload(slot, header.bytes as usize)[read..];
        Ok(Some(Head { channel: header.channel, stamp: header.stamp, left: bytes.len(), bytes }))
    }

    /// Looks whether the next frame has arrived.
    #[inline]
    fn find_front(&mut self) -> bool {
        let Some((slot, written)) = self.order.front() else { return false };
        match Header::decode(&self.slab.header(slot), written) {
            Some(header) if header.bytes <= self.geometry().payload_bytes => {
                self.front = Some(Front { header, slot, read: 0 });
                true
            }
            _ => {
                let text = format!("a write of {written} bytes is no frame");
                self.end.get_or_insert(End::Protocol(text));
                false
            }
        }
    }

    /// Gives back bytes of the head.
    ///
    /// # Panics
    ///
    /// If there is no head, or it has fewer bytes.
    #[inline]
    pub(crate) fn advance(&mut self, bytes: usize) {
        let front = self.front.as_mut().expect("advance follows a head");
        front.read += bytes;
        let len = front.header.bytes as usize;
        assert!(front.read <= len, "advanced to byte {} of a frame of {len}", front.read);
        if front.read == len {
            self.front = None;
            self.order.give_back();
            self.owed.consume();
            self.pay();
        }
    }

    /// Tells the peer what it may send, if that is much and nothing else tells it.
    #[inline]
    fn pay(&mut self) {
        if !self.owed.is_due() || self.end.is_some() || !self.rails[0].has_room(0, self.geometry().slots) {
            return;
        }
        let immediate = Immediate::Credit(self.owed.tell() as u32).encode();
        // SAFETY: nothing is read from memory.
        if let Err(error) = unsafe { self.rails[0].write(0, 0, immediate, (false, false), &[]) } {
            self.fail(error);
        }
    }

    /// Takes in what has happened since the last look.
    #[inline]
    pub(crate) fn progress(&mut self) {
        let (order, window, slab) = (&mut self.order, &mut self.window, &self.slab);
        let mut unsound: Option<String> = None;
        let mut failed: Option<(usize, Failure)> = None;
        for (number, rail) in self.rails.iter_mut().enumerate() {
            let polled = rail.poll(|immediate, bytes| {
                if let Err(text) = take_in(Immediate::decode(immediate), bytes, order, window, slab) {
                    unsound.get_or_insert(text);
                }
            });
            if let Err(failure) = polled
                && failed.is_none_or(|(_, before)| before.status == FLUSHED)
            {
                failed = Some((number, failure));
            }
            if let Err(error) = rail.refill() {
                self.end.get_or_insert(End::Broken(error));
            }
        }
        if let Some(text) = unsound {
            self.end.get_or_insert(End::Protocol(text));
        }
        if let Some((number, failure)) = failed {
            self.rail_failed(number, failure);
        }
        self.pay();
    }

    #[cold]
    fn rail_failed(&mut self, number: usize, failure: Failure) {
        let rail = &self.rails[number];
        let end = if self.order.is_ending() || self.peer_gone {
            End::Closed
        } else {
            let port = rail.adapter.name();
            End::Broken(RdmaError::of_status(&port, &rail.path, failure.status, failure.vendor))
        };
        tracing::debug!("{}: {} ended: {failure:?}", rail.adapter.name(), rail.path);
        self.end.get_or_insert(end);
    }

    /// The peer is gone, or has left.
    pub(crate) fn peer_is_gone(&mut self) {
        self.peer_gone = true;
    }

    /// Files whose readiness means that it is worth looking at the link again.
    pub(crate) fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rails.iter().flat_map(|rail| [rail.completions.file(), rail.adapter.events()])
    }

    /// Asks to be woken by whatever happens from now on. What happened before must be looked at after this.
    pub(crate) fn arm(&mut self) {
        for rail in &mut self.rails {
            let armed = rail.completions.arm().map_err(|error| rail.refused("asking for wake-ups", &error));
            if let Err(error) = armed.and_then(|()| rail.adapter.check()) {
                self.end.get_or_insert(End::Broken(error));
            }
        }
    }

    /// Says goodbye, and waits a little until the peer's device has all that was sent.
    pub(crate) fn close(&mut self) {
        if std::mem::replace(&mut self.farewell_said, true) || self.end.is_some() || self.peer_gone {
            return;
        }
        let immediate = Immediate::Goodbye(self.window.next() as u32).encode();
        for rail in &mut self.rails {
            for queue in 0..rail.queues.len() {
                // SAFETY: nothing is read from memory.
                if let Err(error) = unsafe { rail.write(queue, 0, immediate, (false, true), &[]) } {
                    return tracing::debug!("no goodbye was said: {error}");
                }
            }
        }
        let deadline: Time = Clock::Real.now().after(FAREWELL);
        while !self.rails.iter().all(Rail::is_quiet) {
            self.progress();
            // A peer that has left needs nothing any more.
            if self.end.is_some() || self.order.is_ending() {
                return;
            }
            if deadline <= Clock::Real.now() {
                return tracing::debug!("the goodbye was not acknowledged within {FAREWELL:?}");
            }
            std::thread::yield_now();
        }
    }
}

/// Takes in one write of the peer's.
#[inline]
fn take_in(
    immediate: Immediate,
    bytes: u32,
    order: &mut Order,
    window: &mut Window,
    slab: &Slab,
) -> Result<(), String> {
    let text = |error: OrderError| error.to_string();
    let credit = match immediate {
        Immediate::Frame(number) => {
            let slot = order.arrive(number, bytes).map_err(text)?;
            let header = Header::decode(&slab.header(slot), bytes);
            header.ok_or_else(|| format!("a write of {bytes} bytes is no frame"))?.credit as u32
        }
        Immediate::Credit(number) => number,
        Immediate::Goodbye(number) => return order.end_at(number).map_err(text),
        Immediate::Ping(_) => return Ok(()),
    };
    if window.returned(credit & ((super::immediate::NUMBERS - 1) as u32)) {
        Ok(())
    } else {
        Err(format!("it gives back frames up to {credit}, more than were sent"))
    }
}
