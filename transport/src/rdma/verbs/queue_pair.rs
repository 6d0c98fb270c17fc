//! Reliable connected queue pairs: making them, connecting them, posting to them.

use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;

use ibverbs_sys as ffi;

use super::completion::CompletionQueue;
use super::context::{Domain, Reads, pointer, status};

/// One end of a reliable connection. Its completion queue must live longer.
pub(crate) struct QueuePair {
    domain: Arc<Domain>,
    raw: *mut ffi::ibv_qp,
    inline_bytes: usize,
}

// SAFETY: as of `Context`; posting takes `&mut self`.
unsafe impl Send for QueuePair {}

/// How a queue pair is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    pub(crate) port: u8,
    pub(crate) pkey_index: u16,
    /// Requests to send and to receive that it may hold.
    pub(crate) sends: u32,
    pub(crate) receives: u32,
    /// Bytes that a request should be able to carry in itself.
    pub(crate) inline_bytes: u32,
}

/// Where the other end is, and how to go there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destination {
    pub(crate) port: u8,
    pub(crate) number: u32,
    pub(crate) mtu: u8,
    /// The first packet's number there and here.
    pub(crate) their_first: u32,
    pub(crate) my_first: u32,
    pub(crate) lid: u16,
    /// This end's place in its port's table, and the other's address; always for Ethernet.
    pub(crate) gid: Option<(u8, [u8; 16])>,
    pub(crate) traffic_class: u8,
    pub(crate) service_level: u8,
    /// Each try waits 4.096 us times two to this power; after so many the connection fails.
    pub(crate) timeout: u8,
    pub(crate) retries: u8,
    pub(crate) reads: Reads,
}

/// A stretch of registered memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) start: *const u8,
    pub(crate) bytes: u32,
    pub(crate) key: u32,
}

/// An RDMA write that tells the receiver of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) address: u64,
    pub(crate) key: u32,
    pub(crate) immediate: u32,
    /// The number that its completion carries; without it there is none.
    pub(crate) signal: Option<u64>,
    /// The bytes are copied into the request itself; their memory need not be registered.
    pub(crate) inline: bool,
}

/// The most stretches that one write gathers.
pub(crate) const PIECES_MAX: usize = 2;
/// How long the other end is asked to wait where this one has no receive request, which credits prevent: 0.64 ms.
const RECEIVER_NOT_READY_TIMER: u8 = 12;
const RECEIVER_NOT_READY_RETRIES: u8 = 6;
/// Requests to receive posted with one call.
const RECEIVES_AT_ONCE: usize = 16;

impl QueuePair {
    /// Makes one and lets receive requests be posted to it.
    pub(crate) fn new(domain: &Arc<Domain>, queue: &CompletionQueue, wanted: Attributes) -> io::Result<QueuePair> {
        // A device that can't carry so many bytes in a request refuses; then fewer are tried.
        let mut inline_bytes = wanted.inline_bytes;
        let (raw, inline_bytes) = loop {
            match make(domain, queue, wanted, inline_bytes) {
                Err(error) if error.raw_os_error() == Some(22) && inline_bytes > 0 => inline_bytes /= 2,
                made => break made?,
            }
        };
        let mut pair = QueuePair { domain: domain.clone(), raw, inline_bytes };
        let mut attributes = zeroed();
        attributes.qp_state = ffi::ibv_qp_state::IBV_QPS_INIT;
        attributes.pkey_index = wanted.pkey_index;
        attributes.port_num = wanted.port;
        use ffi::ibv_access_flags as access;
        attributes.qp_access_flags = access::IBV_ACCESS_REMOTE_WRITE.0 | access::IBV_ACCESS_REMOTE_READ.0;
        use ffi::ibv_qp_attr_mask as mask;
        let set = mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS;
        pair.modify(&mut attributes, set)?;
        Ok(pair)
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: valid until dropped.
        unsafe { (*self.raw).qp_num }
    }

    /// Bytes that a write can carry in itself.
    pub(crate) fn inline_bytes(&self) -> usize {
        self.inline_bytes
    }

    /// Joins it to another, which must be joined to this one as well.
    pub(crate) fn connect(&mut self, to: Destination) -> io::Result<()> {
        use ffi::ibv_qp_attr_mask as mask;
        let mut attributes = zeroed();
        attributes.qp_state = ffi::ibv_qp_state::IBV_QPS_RTR;
        attributes.path_mtu = u32::from(to.mtu);
        attributes.dest_qp_num = to.number;
        attributes.rq_psn = to.their_first;
        attributes.max_dest_rd_atomic = to.reads.served;
        attributes.min_rnr_timer = RECEIVER_NOT_READY_TIMER;
        address(&mut attributes.ah_attr, &to);
        let set = mask::IBV_QP_STATE | mask::IBV_QP_AV | mask::IBV_QP_PATH_MTU | mask::IBV_QP_DEST_QPN;
        let set = set | mask::IBV_QP_RQ_PSN | mask::IBV_QP_MAX_DEST_RD_ATOMIC | mask::IBV_QP_MIN_RNR_TIMER;
        self.modify(&mut attributes, set)?;
        let mut attributes = zeroed();
        attributes.qp_state = ffi::ibv_qp_state::IBV_QPS_RTS;
        attributes.sq_psn = to.my_first;
        attributes.timeout = to.timeout;
        attributes.retry_cnt = to.retries;
        attributes.rnr_retry = RECEIVER_NOT_READY_RETRIES;
        attributes.max_rd_atomic = to.reads.begun;
        let set = mask::IBV_QP_STATE | mask::IBV_QP_SQ_PSN | mask::IBV_QP_TIMEOUT | mask::IBV_QP_RETRY_CNT;
        self.modify(&mut attributes, set | mask::IBV_QP_RNR_RETRY | mask::IBV_QP_MAX_QP_RD_ATOMIC)
    }

    fn modify(&mut self, attributes: &mut ffi::ibv_qp_attr, set: ffi::ibv_qp_attr_mask) -> io::Result<()> {
        // SAFETY: the queue pair is valid, and the attributes outlive the call.
        status(unsafe { (self.domain.context.functions.modify_qp)(self.raw, attributes, set.0 as i32) })
    }

    /// Lets `count` more writes with an immediate arrive, each completion of which carries `request`.
    #[inline]
    pub(crate) fn post_receives(&mut self, mut count: usize, request: u64) -> io::Result<()> {
        while count > 0 {
            let n = count.min(RECEIVES_AT_ONCE);
            let empty = ffi::ibv_recv_wr {
                wr_id: request,
                next: std::ptr::null_mut(),
                sg_list: std::ptr::null_mut(),
                num_sge: 0,
            };
            let mut chain = [empty; RECEIVES_AT_ONCE];
            let first = chain.as_mut_ptr();
            let mut bad = std::ptr::null_mut();
            // SAFETY: the chain's links point into it, and the device copies the requests before it returns.
            unsafe {
                for at in 0..n - 1 {
                    (*first.add(at)).next = first.add(at + 1);
                }
                let post = (*(*self.raw).context).ops.post_recv.unwrap_unchecked();
                status(post(self.raw, first, &raw mut bad))?;
            }
            count -= n;
        }
        Ok(())
    }

    /// Writes `pieces`, one behind the other, into the other end's memory.
    ///
    /// # Safety
    ///
    /// Unless it is inline, the pieces stay registered under their keys until the write has ended, and nobody changes them
    /// before; inline, they can be read now.
    #[inline]
    pub(crate) unsafe fn post_write(&mut self, write: &Write, pieces: &[Piece]) -> io::Result<()> {
        let mut gathered = [ffi::ibv_sge { addr: 0, length: 0, lkey: 0 }; PIECES_MAX];
        for (place, piece) in gathered.iter_mut().zip(pieces) {
            *place = ffi::ibv_sge { addr: piece.start as u64, length: piece.bytes, lkey: piece.key };
        }
        let inline = if write.inline { ffi::ibv_send_flags::IBV_SEND_INLINE.0 } else { 0 };
        let target = (write.address, write.key);
        // SAFETY: the caller vouches for the pieces.
        unsafe {
            let opcode = ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
            let gathered = &mut gathered[..pieces.len().min(PIECES_MAX)];
            self.post((opcode, write.immediate), target, (write.signal, inline), gathered)
        }
    }

    /// Reads the other end's memory, from `address` on, to where `piece` lies. The completion carries `signal`.
    ///
    /// # Safety
    ///
    /// The piece stays mapped until the read has ended, or its registration is gone, and nobody touches it before.
    pub(crate) unsafe fn post_read(&mut self, address: u64, key: u32, signal: u64, piece: Piece) -> io::Result<()> {
        let mut scattered = [ffi::ibv_sge { addr: piece.start as u64, length: piece.bytes, lkey: piece.key }];
        // SAFETY: the caller vouches for the piece.
        unsafe {
            let opcode = ffi::ibv_wr_opcode::IBV_WR_RDMA_READ;
            self.post((opcode, 0), (address, key), (Some(signal), 0), &mut scattered)
        }
    }

    /// # Safety
    ///
    /// As the request needs it of its pieces.
    #[inline]
    unsafe fn post(
        &mut self,
        (opcode, immediate): (ffi::ibv_wr_opcode::Type, u32),
        (address, key): (u64, u32),
        (signal, flags): (Option<u64>, u32),
        pieces: &mut [ffi::ibv_sge],
    ) -> io::Result<()> {
        let reported = if signal.is_some() { ffi::ibv_send_flags::IBV_SEND_SIGNALED.0 } else { 0 };
        // SAFETY: zeros are valid for all of its unions; the device copies the request before it returns, and the caller
        // vouches for the pieces.
        unsafe {
            let mut request: ffi::ibv_send_wr = MaybeUninit::zeroed().assume_init();
            request.wr_id = signal.unwrap_or(0);
            request.sg_list = pieces.as_mut_ptr();
            request.num_sge = pieces.len() as i32;
            request.opcode = opcode;
            request.send_flags = flags | reported;
            request.__bindgen_anon_1.imm_data = immediate.to_be();
            request.wr.rdma.remote_addr = address;
            request.wr.rdma.rkey = key;
            let mut bad = std::ptr::null_mut();
            let post = (*(*self.raw).context).ops.post_send.unwrap_unchecked();
            status(post(self.raw, &raw mut request, &raw mut bad))
        }
    }
}

/// Fills in which way packets go, in attributes that are zero.
fn address(attributes: &mut ffi::ibv_ah_attr, to: &Destination) {
    attributes.dlid = to.lid;
    attributes.sl = to.service_level;
    attributes.port_num = to.port;
    if let Some((index, gid)) = to.gid {
        attributes.is_global = 1;
        attributes.grh.dgid = ffi::ibv_gid { raw: gid };
        attributes.grh.sgid_index = index;
        attributes.grh.hop_limit = u8::MAX;
        attributes.grh.traffic_class = to.traffic_class;
    }
}

fn zeroed() -> ffi::ibv_qp_attr {
    // SAFETY: plain numbers, for which zeros are valid.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn make(
    domain: &Arc<Domain>,
    queue: &CompletionQueue,
    wanted: Attributes,
    inline_bytes: u32,
) -> io::Result<(*mut ffi::ibv_qp, usize)> {
    let mut attributes = ffi::ibv_qp_init_attr {
        qp_context: std::ptr::null_mut(),
        send_cq: queue.raw,
        recv_cq: queue.raw,
        srq: std::ptr::null_mut(),
        cap: ffi::ibv_qp_cap {
            max_send_wr: wanted.sends,
            max_recv_wr: wanted.receives,
            max_send_sge: PIECES_MAX as u32,
            max_recv_sge: 1,
            max_inline_data: inline_bytes,
        },
        qp_type: ffi::ibv_qp_type::IBV_QPT_RC,
        sq_sig_all: 0,
    };
    // SAFETY: domain and queue are valid; the domain is held, and the queue is kept by the caller.
    let raw = pointer(unsafe { (domain.context.functions.create_qp)(domain.raw, &raw mut attributes) })?;
    // Some devices say nothing, others what they really have, which may be more.
    Ok((raw, (attributes.cap.max_inline_data as usize).min(inline_bytes as usize)))
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if !self.domain.context.is_foreign() {
            // SAFETY: nobody posts to it any more.
            unsafe { (self.domain.context.functions.destroy_qp)(self.raw) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(gid: Option<(u8, [u8; 16])>) -> ffi::ibv_ah_attr {
        let to = Destination {
            port: 2,
            number: 9,
            mtu: 5,
            their_first: 1,
            my_first: 1,
            lid: 0x1234,
            gid,
            traffic_class: 106,
            service_level: 3,
            timeout: 17,
            retries: 7,
            reads: Reads { begun: 16, served: 16 },
        };
        let mut attributes = zeroed();
        address(&mut attributes.ah_attr, &to);
        attributes.ah_attr
    }

    #[test]
    fn the_way_within_a_subnet_has_no_global_header() {
        let local = filled(None);
        assert_eq!((local.is_global, local.dlid, local.sl, local.port_num), (0, 0x1234, 3, 2));
        assert_eq!((local.grh.sgid_index, local.grh.hop_limit, local.grh.traffic_class), (0, 0, 0));
    }

    #[test]
    fn the_way_by_addresses_has_one() {
        let gid = std::array::from_fn(|at| at as u8);
        let global = filled(Some((7, gid)));
        assert_eq!((global.is_global, global.dlid, global.sl, global.port_num), (1, 0x1234, 3, 2));
        // SAFETY: all views of an address are plain bytes.
        assert_eq!(unsafe { global.grh.dgid.raw }, gid);
        // Routed packets (RoCE v2, InfiniBand between subnets) must survive every router.
        assert_eq!((global.grh.sgid_index, global.grh.hop_limit, global.grh.traffic_class), (7, 255, 106));
    }
}
