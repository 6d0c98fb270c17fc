//! Processes of one host: each hands the other its segment and doorbell over a Unix socket, and looks for the nonce.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

use crate::doorbell::Doorbell;
use crate::memory::Region;
use crate::segment::{Geometry, Segment, SharedSegment};

/// What goes with a segment's file and its owner's doorbell: how the segment is cut, and what its header holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Offer {
    geometry: Geometry,
    nonce: [u8; 16],
}

/// The bytes of an offer on the wire, whatever its numbers.
const OFFER_BYTES: usize = 64;

/// Hands over a region, without waiting.
pub(crate) fn hand_over(socket: BorrowedFd<'_>, region: &Region) -> std::io::Result<()> {
    send_all(socket, &(region.bytes() as u64).to_le_bytes(), &[region.file()])
}

/// Takes a region that the other end hands over. The outer error is the socket's, the inner one the memory's.
pub(crate) fn take_over(socket: BorrowedFd<'_>, deadline: Instant) -> std::io::Result<std::io::Result<Region>> {
    let mut bytes = [0u8; 8];
    let mut files = receive_files(socket, &mut bytes, deadline)?;
    let file = files.pop().filter(|_| files.is_empty());
    let open = |file| Region::attach(file, u64::from_le_bytes(bytes) as usize);
    Ok(file.map_or_else(|| Err(std::io::Error::other("no memory came with the offer")), open))
}

impl Offer {
    /// What goes with a segment, in whose header `nonce` is.
    pub(crate) fn of(segment: &Segment, nonce: [u8; 16]) -> Offer {
        Offer { geometry: segment.geometry(), nonce }
    }

    /// Opens the segment and the doorbell that came with the offer.
    pub(crate) fn open(self, segment: OwnedFd, bell: OwnedFd) -> std::io::Result<Neighbour> {
        let segment = Arc::new(Segment::attach(segment, self.geometry, self.nonce)?);
        Ok(Neighbour { segment, bell: Doorbell::of(bell) })
    }
}

/// Hands over a segment, a doorbell, and perhaps one more file, without waiting.
pub(crate) fn offer(
    socket: BorrowedFd<'_>,
    offer: Offer,
    segment: &Segment,
    bell: &Doorbell,
    more: Option<BorrowedFd<'_>>,
) -> std::io::Result<()> {
    let mut bytes = [0u8; OFFER_BYTES];
    postcard::to_slice(&offer, &mut bytes).map_err(std::io::Error::other)?;
    let files: Vec<_> = [segment.file(), bell.file()].into_iter().chain(more).collect();
    send_all(socket, &bytes, &files)
}

/// The most files that go with one message.
const FILES_MAX: usize = 3;

fn send_all(socket: BorrowedFd<'_>, bytes: &[u8], files: &[BorrowedFd<'_>]) -> std::io::Result<()> {
    let sent = send_files(socket, bytes, files)?;
    if sent == bytes.len() { Ok(()) } else { Err(std::io::Error::other("the socket is full")) }
}

/// Sends bytes with files, as far as the socket takes them; how many.
pub(crate) fn send_files(socket: BorrowedFd<'_>, bytes: &[u8], files: &[BorrowedFd<'_>]) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(files)), "there is space for {FILES_MAX} files");
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)
}

/// The next bytes, at the most `bytes`, and the files that came with them. None at all at the end.
pub(crate) fn receive_message(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> rustix::io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [std::io::IoSliceMut::new(bytes)];
    let received = rustix::net::recvmsg(socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let rights = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    Ok((received.bytes, rights.flatten().collect()))
}

fn receive_files(socket: BorrowedFd<'_>, bytes: &mut [u8], deadline: Instant) -> std::io::Result<Vec<OwnedFd>> {
    let (mut files, mut filled) = (Vec::new(), 0);
    while filled < bytes.len() {
        wait_readable(socket, deadline)?;
        let (received, more) = receive_message(socket, &mut bytes[filled..])?;
        if received == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        filled += received;
        files.extend(more);
    }
    Ok(files)
}

/// A neighbour's segment and doorbell, as far as they could be opened.
pub(crate) struct Neighbour {
    pub(crate) segment: SharedSegment,
    pub(crate) bell: Doorbell,
}

/// Takes what the other end offers with so many files more than two, and opens it. The outer error is the socket's: the peer
/// is gone or silent. The inner one says why its memory can't be used.
pub(crate) fn accept(
    socket: BorrowedFd<'_>,
    more: usize,
    deadline: Instant,
) -> std::io::Result<std::io::Result<(Neighbour, Vec<OwnedFd>)>> {
    let mut bytes = [0u8; OFFER_BYTES];
    let files = receive_files(socket, &mut bytes, deadline)?;
    Ok(open(&bytes, files, more))
}

fn open(bytes: &[u8], files: Vec<OwnedFd>, more: usize) -> std::io::Result<(Neighbour, Vec<OwnedFd>)> {
    let offer: Offer = postcard::from_bytes(bytes).map_err(std::io::Error::other)?;
    let ([segment, bell], rest) = take_two(files, more)?;
    Ok((offer.open(segment, bell)?, rest))
}

/// The segment and the doorbell that came with an offer, and the other files, of which there must be so many.
pub(crate) fn take_two(files: Vec<OwnedFd>, more: usize) -> std::io::Result<([OwnedFd; 2], Vec<OwnedFd>)> {
    let (came, mut files) = (files.len(), files.into_iter());
    match (files.next(), files.next()) {
        (Some(segment), Some(bell)) if came == 2 + more => Ok(([segment, bell], files.collect())),
        _ => Err(std::io::Error::other(format!("{came} files came with the offer, not {}", 2 + more))),
    }
}

/// Tells the other end whether its memory could be opened.
pub(crate) fn tell_verdict(socket: BorrowedFd<'_>, opened: bool) -> std::io::Result<()> {
    rustix::net::send(socket, &[u8::from(opened)], SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Whether the other end could open this end's memory.
pub(crate) fn hear_verdict(socket: BorrowedFd<'_>, deadline: Instant) -> std::io::Result<bool> {
    wait_readable(socket, deadline)?;
    let mut verdict = [0u8];
    match rustix::net::recv(socket, &mut verdict, RecvFlags::empty())?.0 {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(verdict[0] == 1),
    }
}

fn wait_readable(socket: BorrowedFd<'_>, deadline: Instant) -> std::io::Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let file = socket.as_fd();
        match poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer in time")),
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
