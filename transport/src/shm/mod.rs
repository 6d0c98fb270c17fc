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

/// What goes with the two files: how the segment is cut, what its header holds, and the owner's place in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
struct Offer {
    geometry: Geometry,
    nonce: [u8; 16],
}

/// The bytes of an offer on the wire, whatever its numbers.
const OFFER_BYTES: usize = 64;

/// Hands over a region, without waiting.
pub(crate) fn hand_over(socket: BorrowedFd<'_>, region: &Region) -> std::io::Result<()> {
    send_files(socket, &(region.bytes() as u64).to_le_bytes(), &[region.file()])
}

/// Takes a region that the other end hands over. The outer error is the socket's, the inner one the memory's.
pub(crate) fn take_over(socket: BorrowedFd<'_>, deadline: Instant) -> std::io::Result<std::io::Result<Region>> {
    let mut bytes = [0u8; 8];
    let mut files = receive_files(socket, &mut bytes, deadline)?;
    let file = files.pop().filter(|_| files.is_empty());
    let open = |file| Region::attach(file, u64::from_le_bytes(bytes) as usize);
    Ok(file.map_or_else(|| Err(std::io::Error::other("no memory came with the offer")), open))
}

/// Hands over a segment and a doorbell, without waiting.
pub(crate) fn offer(
    socket: BorrowedFd<'_>,
    segment: &Segment,
    nonce: [u8; 16],
    bell: &Doorbell,
) -> std::io::Result<()> {
    let mut bytes = [0u8; OFFER_BYTES];
    let offer = Offer { geometry: segment.geometry(), nonce };
    postcard::to_slice(&offer, &mut bytes).map_err(std::io::Error::other)?;
    send_files(socket, &bytes, &[segment.file(), bell.file()])
}

/// The most files that go with one message.
const FILES_MAX: usize = 2;

fn send_files(socket: BorrowedFd<'_>, bytes: &[u8], files: &[BorrowedFd<'_>]) -> std::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(files)), "there is space for {FILES_MAX} files");
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(std::io::Error::other("the socket is full")) }
}

fn receive_files(socket: BorrowedFd<'_>, bytes: &mut [u8], deadline: Instant) -> std::io::Result<Vec<OwnedFd>> {
    let (mut files, mut filled) = (Vec::new(), 0);
    while filled < bytes.len() {
        wait_readable(socket, deadline)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [std::io::IoSliceMut::new(&mut bytes[filled..])];
        let received = rustix::net::recvmsg(socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        if received.bytes == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        filled += received.bytes;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                files.extend(rights);
            }
        }
    }
    Ok(files)
}

/// A neighbour's segment and doorbell, as far as they could be opened.
pub(crate) struct Neighbour {
    pub(crate) segment: SharedSegment,
    pub(crate) bell: Doorbell,
}

/// Takes what the other end offers, and opens it. The outer error is the socket's: the peer is gone or silent. The inner
/// one says why its memory can't be used.
pub(crate) fn accept(socket: BorrowedFd<'_>, deadline: Instant) -> std::io::Result<std::io::Result<Neighbour>> {
    let mut bytes = [0u8; OFFER_BYTES];
    let files = receive_files(socket, &mut bytes, deadline)?;
    Ok(open(&bytes, files))
}

fn open(bytes: &[u8], files: Vec<OwnedFd>) -> std::io::Result<Neighbour> {
    let offer: Offer = postcard::from_bytes(bytes).map_err(std::io::Error::other)?;
    let [segment, bell] = <[OwnedFd; 2]>::try_from(files)
        .map_err(|files| std::io::Error::other(format!("{} files came with the offer, not 2", files.len())))?;
    let segment = Arc::new(Segment::attach(segment, offer.geometry, offer.nonce)?);
    Ok(Neighbour { segment, bell: Doorbell::of(bell) })
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
