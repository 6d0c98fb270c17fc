//! The receiving half of large messages: their bytes are read from where they lie: `README.md`, "fetching".

use std::collections::VecDeque;

use super::frame::FrameKind;
use super::link::RdmaLink;
use super::offer::{SOURCE_BYTES, Source};
use super::registration::{Found, Use};
use super::traffic;
use super::verbs::Piece;
use crate::link::LinkError;

/// The most bytes that one request reads; fewer where several queue pairs share a message, but not much fewer.
const READ_BYTES_MAX: usize = 1 << 20;
const READ_BYTES_MIN: usize = 128 << 10;
/// Reads under way at once, for each queue pair.
const READS_AT_ONCE: usize = 4;
const PAGE_BYTES: usize = 4096;

/// The message in front, as far as it is fetched.
pub(super) struct Fetch {
    source: Source,
    /// Bytes to fetch; in reads that were begun; of these, from the front, the bytes that are here; and those read by the
    /// owner of the link.
    bytes: usize,
    begun: usize,
    here: usize,
    read: usize,
    into: Into,
    /// The most bytes that one request reads.
    cut: usize,
    under_way: VecDeque<ReadUnderWay>,
    under_way_max: usize,
}

/// Where bytes are read to.
enum Into {
    /// Where they belong: from this address on.
    Target {
        start: usize,
        /// Keeps it registered.
        memory: Found,
    },
    /// The link's own memory, in which the owner of the link reads them.
    Landing,
}

#[derive(Clone, Copy, Debug)]
struct ReadUnderWay {
    rail: usize,
    queue: usize,
    request: u64,
    bytes: usize,
}

impl Fetch {
    pub(super) fn is_of_loan(&self) -> bool {
        matches!(&self.into, Into::Target { memory, .. } if memory.is_lent())
    }
}

impl RdmaLink {
    /// If the head is an offer that nobody fetches, begins to fetch it to where it can be read; whether it was.
    pub(crate) fn show(&mut self) -> bool {
        let is_offer = self.front.is_some_and(|front| front.header.kind == FrameKind::Offer);
        if !is_offer || self.fetch.is_some() {
            return false;
        }
        self.begin_fetch(None);
        // An error stays, and shows at the next look.
        let _ = self.fetch_on();
        true
    }

    /// Moves bytes of the offer in front to `target`, which is not empty; how many are there.
    pub(super) fn recv_offered(
        &mut self,
        copy: impl FnOnce(&mut [u8], &[u8]),
        target: &mut [u8],
    ) -> Result<usize, LinkError> {
        if self.fetch.is_none() {
            self.begin_fetch(Some(target));
        }
        self.fetch_on()?;
        let fetch = self.fetch.as_ref().expect("begun above");
        let bytes = match fetch.into {
            Into::Target { start, .. } => {
                assert!(start + fetch.read == target.as_ptr() as usize, "the target has changed within a message");
                let bytes = (fetch.here - fetch.read).min(target.len());
                traffic::placed(bytes);
                bytes
            }
            Into::Landing => {
                let here = self.fetched();
                let bytes = here.len().min(target.len());
                copy(&mut target[..bytes], &here[..bytes]);
                traffic::copied_out(bytes);
                bytes
            }
        };
        if bytes > 0 {
            self.advance(bytes);
        }
        Ok(bytes)
    }

    /// Begins to fetch what is left of the offer in front: as much as fits, if `target` is registered.
    fn begin_fetch(&mut self, target: Option<&mut [u8]>) {
        let front = self.front.expect("looked at before");
        let payload = self.slab.payload(front.slot, SOURCE_BYTES);
        let Source { address, keys } = Source::decode(payload.try_into().expect("so many were asked for"));
        let source = Source { address: address.wrapping_add(front.read as u64), keys };
        let left = front.header.bytes as usize - front.read;
        let found = target.and_then(|target| {
            let bytes = target.len().min(left);
            let memory = self.memory.find(target.as_ptr(), bytes, Use::Target)?;
            Some((bytes, Into::Target { start: target.as_mut_ptr() as usize, memory }))
        });
        let (bytes, into) = found.unwrap_or((left, Into::Landing));
        let queues: usize = self.rails.iter().map(|rail| rail.queues.len()).sum();
        let cut = match into {
            Into::Target { .. } => (bytes / queues).next_multiple_of(PAGE_BYTES).clamp(READ_BYTES_MIN, READ_BYTES_MAX),
            Into::Landing => self.slab.landing_piece_bytes(),
        };
        let (under_way, under_way_max) = (VecDeque::new(), READS_AT_ONCE * queues);
        self.fetch = Some(Fetch { source, bytes, begun: 0, here: 0, read: 0, into, cut, under_way, under_way_max });
    }

    /// Looks what has come of the offer in front, if it is being fetched, and begins reads as long as there is room.
    pub(super) fn fetch_on(&mut self) -> Result<(), LinkError> {
        if self.fetch.is_none() {
            return Ok(());
        }
        self.progress();
        let Some(fetch) = &mut self.fetch else { return Ok(()) };
        while let Some(read) = fetch.under_way.front()
            && self.rails[read.rail].has_ended(read.queue, read.request)
        {
            fetch.here += read.bytes;
            fetch.under_way.pop_front();
        }
        if let Some(end) = &self.end {
            return if fetch.read < fetch.here { Ok(()) } else { Err(end.into()) };
        }
        while self.begin_read()? {}
        Ok(())
    }

    /// Begins a read, if something is left to read and there is room; whether it did.
    fn begin_read(&mut self) -> Result<bool, LinkError> {
        let Some(fetch) = &mut self.fetch else { return Ok(false) };
        // As in `way`.
        let rail_number = self.turn % self.rails.len();
        let queue = self.turn / self.rails.len() % self.rails[rail_number].queues.len();
        let (rail, slots) = (&mut self.rails[rail_number], self.slab.geometry().slots);
        if fetch.begun == fetch.bytes || fetch.under_way_max <= fetch.under_way.len() || !rail.has_room(queue, slots) {
            return Ok(false);
        }
        let bytes = (fetch.bytes - fetch.begun).min(fetch.cut);
        let (start, key) = match &fetch.into {
            Into::Target { start, memory } => ((start + fetch.begun) as *const u8, memory.local_key(rail.port)),
            Into::Landing => {
                let first_unread = fetch.read / fetch.cut * fetch.cut;
                if self.slab.landing_bytes() <= fetch.begun - first_unread {
                    return Ok(false);
                }
                (self.slab.landing(fetch.begun), rail.slots.local_key())
            }
        };
        let source = (fetch.source.address.wrapping_add(fetch.begun as u64), fetch.source.keys[rail_number]);
        let piece = Piece { start, bytes: bytes as u32, key };
        // SAFETY: the target was lent by the caller of `recv_into` until the bytes are there, and is registered as long as
        // the link knows it (`Found`); a piece of the landing place is read to again only when its bytes have been read.
        let posted = unsafe { rail.fetch(queue, source, piece) };
        let request = posted.map_err(|error| self.fail(error))?;
        self.turn = self.turn.wrapping_add(1);
        let fetch = self.fetch.as_mut().expect("looked at above");
        fetch.begun += bytes;
        fetch.under_way.push_back(ReadUnderWay { rail: rail_number, queue, request, bytes });
        if matches!(fetch.into, Into::Landing) {
            traffic::landed(bytes);
        }
        Ok(true)
    }

    /// Bytes of the offer in front that can be read: none of those that are where they belong.
    pub(super) fn fetched(&self) -> &[u8] {
        match &self.fetch {
            Some(Fetch { into: Into::Landing, here, read, cut, .. }) => {
                self.slab.landed(*read, (here - read).min(cut - read % cut))
            }
            _ => &[],
        }
    }

    /// Bytes of the offer in front have been read.
    pub(super) fn fetched_are_read(&mut self, bytes: usize) {
        let fetch = self.fetch.as_mut().expect("bytes were shown");
        fetch.read += bytes;
        assert!(fetch.read <= fetch.here, "advanced to byte {} of {} that are here", fetch.read, fetch.here);
        if fetch.read == fetch.bytes {
            self.fetch = None;
        }
    }
}
