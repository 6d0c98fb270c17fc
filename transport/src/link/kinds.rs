//! The closed set of links: one `match` per call, and what all kinds have in common.

use std::os::fd::BorrowedFd;

use super::aside::Aside;
use super::{Channel, Head, LinkError, LinkKind, Stamp};
use crate::control::{Control, ControlEvent};
#[cfg(feature = "rdma")]
use crate::rdma::RdmaLink;
use crate::ring::RingLink;
use crate::sim::SimLink;
use crate::stream;
use crate::tcp::TcpLink;

/// One kind of link, by its own room.
pub(crate) enum Kind {
    /// Threads of one process.
    Inproc(RingLink),
    /// Processes of one host.
    Shm(RingLink),
    /// Hosts, over InfiniBand or RoCE.
    #[cfg(feature = "rdma")]
    Rdma(Box<RdmaLink>),
    /// Hosts.
    Tcp(Box<TcpLink>),
    /// Ranks of a simulated network.
    Sim(Box<SimLink>),
}

/// A link to one peer.
pub(crate) struct Link {
    kind: Kind,
    control: Control,
    aside: Aside,
}

impl Link {
    pub(crate) fn new(kind: Kind, control: Control) -> Link {
        Link { kind, control, aside: Aside::default() }
    }

    pub(crate) fn kind(&self) -> LinkKind {
        match self.kind {
            Kind::Inproc(_) => LinkKind::Inproc,
            Kind::Shm(_) => LinkKind::Shm,
            #[cfg(feature = "rdma")]
            Kind::Rdma(_) => LinkKind::Rdma,
            Kind::Tcp(_) => LinkKind::Tcp,
            Kind::Sim(_) => LinkKind::Sim,
        }
    }

    /// Whether what moves its bytes needs the processor that looks for them.
    pub(crate) fn is_software_device(&self) -> bool {
        match &self.kind {
            #[cfg(feature = "rdma")]
            Kind::Rdma(rdma) => rdma.is_software(),
            _ => false,
        }
    }

    /// What memory can be lent to, if the link gains from it.
    #[cfg(feature = "rdma")]
    pub(crate) fn lender(&self) -> Option<&std::sync::Arc<crate::rdma::Registered>> {
        match &self.kind {
            Kind::Rdma(rdma) => Some(rdma.lender()),
            _ => None,
        }
    }

    /// Goes on with no message from or to lent memory.
    #[cfg(feature = "rdma")]
    pub(crate) fn forget_loans(&mut self) {
        if let Kind::Rdma(rdma) = &mut self.kind {
            rdma.forget_loans();
        }
    }

    /// What is wrong with the way to the peer though no call has failed for it yet, if that is known.
    pub(crate) fn trouble(&self) -> Option<String> {
        match &self.kind {
            #[cfg(feature = "rdma")]
            Kind::Rdma(rdma) => rdma.trouble(),
            Kind::Inproc(_) | Kind::Shm(_) | Kind::Tcp(_) | Kind::Sim(_) => None,
        }
    }

    /// Accepts bytes from the front of `message`; `None` while there is no room.
    #[inline]
    pub(crate) fn send(&mut self, channel: Channel, stamp: Stamp, message: &[u8]) -> Result<Option<usize>, LinkError> {
        match &mut self.kind {
            Kind::Inproc(ring) | Kind::Shm(ring) => Ok(ring.send(channel, stamp, message)),
            #[cfg(feature = "rdma")]
            Kind::Rdma(rdma) => rdma.send(channel, stamp, message),
            Kind::Tcp(tcp) => tcp.send(channel, stamp, message),
            Kind::Sim(link) => link.send(channel, stamp, message),
        }
    }

    /// The oldest frame of any channel that has not been set aside.
    #[inline]
    fn raw_head(&mut self) -> Result<Option<Head<'_>>, LinkError> {
        match &mut self.kind {
            Kind::Inproc(ring) | Kind::Shm(ring) => ring.head(),
            #[cfg(feature = "rdma")]
            Kind::Rdma(rdma) => rdma.head(),
            Kind::Tcp(tcp) => tcp.head(),
            Kind::Sim(link) => link.head(),
        }
    }

    #[inline]
    fn raw_advance(&mut self, bytes: usize) {
        match &mut self.kind {
            Kind::Inproc(ring) | Kind::Shm(ring) => ring.advance(bytes),
            #[cfg(feature = "rdma")]
            Kind::Rdma(rdma) => rdma.advance(bytes),
            Kind::Tcp(tcp) => tcp.advance(bytes),
            Kind::Sim(link) => link.advance(bytes),
        }
    }

    /// What has arrived on `channel`, if that is what comes next on it.
    #[inline]
    pub(crate) fn head(&mut self, channel: Channel) -> Result<Option<Head<'_>>, LinkError> {
        // The look at `aside` is repeated because its borrow may not end up in one return and be dropped in the other.
        if !self.aside.is_empty() && self.aside.head(channel).is_some() {
            return Ok(self.aside.head(channel));
        }
        Ok(self.raw_head()?.filter(|head| head.channel == channel))
    }

    /// Marks bytes of `channel`'s head as read; with 0, releases an empty frame.
    #[inline]
    pub(crate) fn advance(&mut self, channel: Channel, bytes: usize) {
        if !self.aside.is_empty() && self.aside.head(channel).is_some() {
            return self.aside.advance(channel, bytes);
        }
        self.raw_advance(bytes);
    }

    /// Moves arrived bytes of `channel`'s head to `target`; how many. The head has been looked at just before.
    #[inline]
    pub(crate) fn recv_into(&mut self, channel: Channel, target: &mut [u8]) -> Result<usize, LinkError> {
        self.recv_by(<[u8]>::copy_from_slice, channel, target)
    }

    /// As [`Link::recv_into`], for bytes that nobody reads soon.
    pub(crate) fn recv_past_caches(&mut self, channel: Channel, target: &mut [u8]) -> Result<usize, LinkError> {
        self.recv_by(stream::copy, channel, target)
    }

    #[inline(always)]
    fn recv_by(
        &mut self,
        copy: impl FnOnce(&mut [u8], &[u8]),
        channel: Channel,
        target: &mut [u8],
    ) -> Result<usize, LinkError> {
        let aside = !self.aside.is_empty() && self.aside.head(channel).is_some();
        if let (Kind::Tcp(tcp), false) = (&mut self.kind, aside) {
            return tcp.recv_into(target);
        }
        #[cfg(feature = "rdma")]
        if let (Kind::Rdma(rdma), false) = (&mut self.kind, aside) {
            return rdma.recv_by(copy, target);
        }
        let Some(head) = self.head(channel)? else { return Ok(0) };
        let bytes = head.bytes.len().min(target.len());
        copy(&mut target[..bytes], &head.bytes[..bytes]);
        if bytes > 0 {
            self.advance(channel, bytes);
        }
        Ok(bytes)
    }

    /// Asks for the bytes of a head that shows none, for an owner who wants to read them where they arrive.
    pub(crate) fn show(&mut self) -> bool {
        match &mut self.kind {
            #[cfg(feature = "rdma")]
            Kind::Rdma(rdma) => rdma.show(),
            _ => false,
        }
    }

    /// Copies the head frame out of the way if it belongs to another channel than `waiting`; what it was.
    pub(crate) fn set_aside(&mut self, waiting: Channel) -> Result<Option<(Channel, Stamp)>, LinkError> {
        if self.aside.head(waiting).is_some() {
            return Ok(None);
        }
        let mut aside = std::mem::take(&mut self.aside);
        let moved = match self.raw_head() {
            Ok(Some(head)) if head.channel != waiting && (head.left == 0 || !head.bytes.is_empty()) => {
                aside.keep(&head);
                Ok(Some((head.channel, head.stamp, head.bytes.len())))
            }
            Ok(Some(head)) if head.channel != waiting => {
                // What has only been offered makes way for those behind, and comes in their turn.
                let whose = (head.channel, head.stamp);
                self.aside = aside;
                return Ok(self.show().then_some(whose));
            }
            Ok(_) => Ok(None),
            Err(error) => Err(error),
        };
        self.aside = aside;
        Ok(moved?.map(|(channel, stamp, bytes)| {
            self.raw_advance(bytes);
            (channel, stamp)
        }))
    }

    /// Whether what is in the middle of arriving may come together before it wakes a sleeper. Rings tell of whole slots anyway.
    pub(crate) fn coalesce(&mut self, on: bool) {
        if let Kind::Tcp(tcp) = &mut self.kind {
            tcp.coalesce(on);
        }
    }

    /// The ring, where there is one.
    #[inline]
    pub(crate) fn ring(&mut self) -> Option<&mut RingLink> {
        match &mut self.kind {
            Kind::Inproc(ring) | Kind::Shm(ring) => Some(ring),
            #[cfg(feature = "rdma")]
            Kind::Rdma(_) => None,
            Kind::Tcp(_) | Kind::Sim(_) => None,
        }
    }

    /// Whether the peer may have to be woken; then a full fence and `ring_if_asleep` follow.
    #[inline]
    pub(crate) fn take_touched(&mut self) -> bool {
        match &mut self.kind {
            Kind::Inproc(ring) | Kind::Shm(ring) => ring.take_touched(),
            #[cfg(feature = "rdma")]
            Kind::Rdma(_) => false,
            Kind::Tcp(_) | Kind::Sim(_) => false,
        }
    }

    pub(crate) fn ring_if_asleep(&self) {
        match &self.kind {
            Kind::Inproc(ring) | Kind::Shm(ring) => ring.ring_if_asleep(),
            #[cfg(feature = "rdma")]
            Kind::Rdma(_) => {}
            Kind::Tcp(_) | Kind::Sim(_) => {}
        }
    }

    /// The file whose readiness means news on the control path; `None` where that is no file.
    pub(crate) fn control_file(&self) -> Option<BorrowedFd<'_>> {
        self.control.file()
    }

    /// The peer's process, where it is watched beside the control path.
    pub(crate) fn process(&self) -> Option<BorrowedFd<'_>> {
        self.control.process()
    }

    /// The peer's process has ended; the control path will say so after all that it still holds.
    pub(crate) fn process_ended(&mut self) {
        self.control.process_ended();
    }

    /// Files whose readiness means that it is worth looking at the link again.
    pub(crate) fn data_files(&self) -> Vec<BorrowedFd<'_>> {
        match &self.kind {
            #[cfg(feature = "rdma")]
            Kind::Rdma(rdma) => rdma.files().collect(),
            Kind::Tcp(tcp) => tcp.fds().collect(),
            Kind::Inproc(_) | Kind::Shm(_) | Kind::Sim(_) => Vec::new(),
        }
    }

    pub(crate) fn notify(&mut self, notice: &[u8]) {
        self.control.notify(notice);
    }

    pub(crate) fn control_event(&mut self) -> Option<ControlEvent> {
        let event = self.control.event();
        #[cfg(feature = "rdma")]
        if let (Kind::Rdma(rdma), Some(event)) = (&mut self.kind, &event)
            && !matches!(event, ControlEvent::Notice(_))
        {
            rdma.peer_is_gone();
        }
        event
    }

    /// Tells the peer that this rank leaves in order, after all that it has sent.
    pub(crate) fn leave(&mut self) {
        #[cfg(feature = "rdma")]
        if let Kind::Rdma(rdma) = &mut self.kind {
            rdma.close();
        }
        self.control.leave();
    }

    /// Has the sleeper woken by what happens from now on; what happened before is looked at after this.
    #[cfg(feature = "rdma")]
    pub(crate) fn about_to_sleep(&mut self) {
        if let Kind::Rdma(rdma) = &mut self.kind {
            rdma.arm();
        }
    }

    /// Whether nothing that has arrived waits to be read, and the control path has not broken.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.aside.is_empty() && self.control.is_whole() && self.ring().is_some_and(RingLink::is_quiet)
    }

    /// Tells the peer that this rank leaves the group in order, but keeps the link; whether it could be told.
    pub(crate) fn part(&mut self) -> bool {
        self.control.part()
    }

    /// Begins anew with a link that both ends have kept.
    pub(crate) fn meet_again(&mut self) {
        self.control.meet_again();
    }

    /// Tells the peer that this rank could not join the group.
    pub(crate) fn give_up(&mut self, peers: &[usize], how: &str) {
        self.control.give_up(peers, how);
    }
}
