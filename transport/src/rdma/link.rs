//! A link over InfiniBand or RoCE: frames are written into the peer's slots, and read there.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::errors::{FLUSHED, RdmaError};
use super::fetch::Fetch;
use super::frame::{FrameKind, Header};
use super::immediate::{Immediate, NUMBERS};
use super::offer::Leaving;
use super::order::{Order, OrderError};
use super::rail::{Failure, Mode, Rail};
use super::registration::Registered;
use super::slab::{Geometry, Slab};
use super::traffic;
use super::window::{Owed, Window};
use crate::clock::{Clock, Time};
use crate::link::{Head, LinkError};

/// How long a leaving end waits until the peer's device has what was sent.
const FAREWELL: std::time::Duration = std::time::Duration::from_secs(2);

/// A link over InfiniBand or RoCE.
///
/// Fields are dropped in order: what refers to the slots goes before them.
pub(crate) struct RdmaLink {
    pub(super) rails: Vec<Rail>,
    pub(super) slab: Slab,
    /// Memory that the user has registered.
    pub(super) memory: Arc<Registered>,
    /// Messages that the peer fetches from such memory, at most one for each channel.
    pub(super) leaving: Vec<Leaving>,
    /// The message in front, if it is one that this end fetches.
    pub(super) fetch: Option<Fetch>,
    pub(super) inline_bytes: usize,
    pub(super) window: Window,
    pub(super) owed: Owed,
    pub(super) order: Order,
    /// The frame that is being read.
    pub(super) front: Option<Front>,
    pub(super) end: Option<End>,
    /// Where the next large frame goes: rails and their queues by turns.
    pub(super) turn: usize,
    /// The peer has gone, as its control path says: there is nobody to take leave of.
    peer_gone: bool,
    farewell_said: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Front {
    pub(super) header: Header,
    pub(super) slot: usize,
    pub(super) read: usize,
}

/// Why the link can't go on.
#[derive(Clone, Debug)]
pub(super) enum End {
    Closed,
    Broken(RdmaError),
    Protocol(String),
}

impl From<&End> for LinkError {
    fn from(end: &End) -> LinkError {
        match end {
            End::Closed => LinkError::Closed,
            End::Broken(error) => LinkError::Rdma(Box::new(error.clone())),
            End::Protocol(text) => LinkError::Protocol(text.clone()),
        }
    }
}

impl RdmaLink {
    /// A link over connected rails, whose slots are cut alike at both ends.
    pub(super) fn new(rails: Vec<Rail>, slab: Slab, memory: Arc<Registered>) -> RdmaLink {
        let slots = u64::from(slab.geometry().slots);
        RdmaLink {
            inline_bytes: rails.iter().map(Rail::inline_bytes).min().unwrap_or(0),
            rails,
            slab,
            memory,
            leaving: Vec::new(),
            fetch: None,
            window: Window::new(slots),
            owed: Owed::new(slots),
            order: Order::new(slots),
            front: None,
            end: None,
            turn: 0,
            peer_gone: false,
            farewell_said: false,
        }
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.slab.geometry()
    }

    /// Whether what a port does takes processor time from whoever waits for it.
    pub(crate) fn is_software(&self) -> bool {
        self.rails.iter().any(|rail| rail.adapter.candidate.facts.is_software)
    }

    pub(crate) fn lender(&self) -> &Arc<Registered> {
        &self.memory
    }

    /// Goes on with no message from or to lent memory: whose it was may free it. Its registration ends with the loan, and
    /// requests under way then fail.
    pub(crate) fn forget_loans(&mut self) {
        self.leaving.retain(|leaving| !leaving.memory.is_lent());
        self.fetch.take_if(|fetch| fetch.is_of_loan());
    }

    pub(super) fn fail(&mut self, error: RdmaError) -> LinkError {
        LinkError::from(&*self.end.get_or_insert(End::Broken(error)))
    }

    /// The oldest frame that isn't wholly read.
    #[inline]
    pub(crate) fn head(&mut self) -> Result<Option<Head<'_>>, LinkError> {
        let Some(Front { header, slot, read }) = self.look_for_front()? else { return Ok(None) };
        let left = header.bytes as usize - read;
        if header.kind == FrameKind::Offer {
            self.fetch_on()?;
        }
        let bytes = match header.kind {
            FrameKind::Here => &self.slab.payload(slot, header.bytes as usize)[read..],
            FrameKind::Offer => self.fetched(),
        };
        Ok(Some(Head { channel: header.channel, stamp: header.stamp, left, bytes }))
    }

    /// The frame that is being read, or the next.
    #[inline]
    fn look_for_front(&mut self) -> Result<Option<Front>, LinkError> {
        if !self.find_front() {
            self.progress();
            if !self.find_front() {
                if self.order.is_ended() {
                    return Err(LinkError::Closed);
                }
                return self.end.as_ref().map_or(Ok(None), |end| Err(end.into()));
            }
        }
        Ok(self.front)
    }

    /// Looks whether the next frame has arrived.
    #[inline]
    fn find_front(&mut self) -> bool {
        if self.front.is_some() {
            return true;
        }
        let Some((slot, written)) = self.order.front() else { return false };
        let header = Header::decode(&self.slab.header(slot), written);
        self.front = header.filter(|header| self.is_sound(header)).map(|header| Front { header, slot, read: 0 });
        if self.front.is_none() {
            let text = format!("a write of {written} bytes is no frame that belongs here");
            self.end.get_or_insert(End::Protocol(text));
        }
        self.front.is_some()
    }

    fn is_sound(&self, header: &Header) -> bool {
        match header.kind {
            FrameKind::Here => header.bytes <= self.geometry().payload_bytes,
            FrameKind::Offer => header.bytes > 0,
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
        let (is_read, is_offer) = (front.read == len, front.header.kind == FrameKind::Offer);
        if is_offer {
            self.fetched_are_read(bytes);
        }
        if is_read {
            self.front = None;
            self.give_back(is_offer);
        }
    }

    /// Moves bytes of the head into `target` by `copy`, or has them fetched to where `target` lies; how many are there.
    #[inline]
    pub(crate) fn recv_by(
        &mut self,
        copy: impl FnOnce(&mut [u8], &[u8]),
        target: &mut [u8],
    ) -> Result<usize, LinkError> {
        let Some(Front { header, .. }) = self.look_for_front()? else { return Ok(0) };
        if target.is_empty() {
            return Ok(0);
        }
        if header.kind == FrameKind::Offer {
            return self.recv_offered(copy, target);
        }
        let Some(head) = self.head()? else { return Ok(0) };
        let bytes = head.bytes.len().min(target.len());
        if bytes == 0 {
            return Ok(0);
        }
        copy(&mut target[..bytes], &head.bytes[..bytes]);
        traffic::copied_out(bytes);
        self.advance(bytes);
        Ok(bytes)
    }

    /// The frame in front has been read; the peer is waiting to hear it, or only when much is owed.
    #[inline]
    fn give_back(&mut self, is_awaited: bool) {
        self.order.give_back();
        self.owed.consume();
        if is_awaited {
            self.owed.hurry();
        }
        self.pay();
    }

    /// Tells the peer what has been given back, if that is much or awaited and nothing else tells it.
    #[inline]
    fn pay(&mut self) {
        if !self.owed.is_due() || self.end.is_some() || !self.rails[0].has_room(0, self.geometry().slots) {
            return;
        }
        let immediate = Immediate::Credit(self.owed.tell() as u32);
        // SAFETY: nothing is read from memory.
        if let Err(error) = unsafe { self.rails[0].write(0, 0, immediate, Mode::Quiet, &[]) } {
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
            // What a device says of a request when its own port is down leads nowhere.
            let of_status = || RdmaError::of_status(&rail.adapter.name(), &rail.path, failure.status, failure.vendor);
            End::Broken(rail.adapter.down().unwrap_or_else(of_status))
        };
        tracing::debug!("{}: {} ended: {failure:?}", rail.adapter.name(), rail.path);
        self.end.get_or_insert(end);
    }

    /// What is wrong now with a port or with the link, where an error may not have shown it yet.
    pub(crate) fn trouble(&self) -> Option<String> {
        match &self.end {
            Some(End::Broken(error)) => Some(error.to_string()),
            Some(End::Closed | End::Protocol(_)) => None,
            None => self.rails.iter().find_map(|rail| rail.adapter.down()).map(|error| error.to_string()),
        }
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
        let immediate = Immediate::Goodbye(self.window.next() as u32);
        for rail in &mut self.rails {
            for queue in 0..rail.queues.len() {
                // SAFETY: nothing is read from memory.
                if let Err(error) = unsafe { rail.write(queue, 0, immediate, Mode::Reported, &[]) } {
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
    if window.returned(credit & ((NUMBERS - 1) as u32)) {
        Ok(())
    } else {
        Err(format!("it gives back frames up to {credit}, more than were sent"))
    }
}
