//! Registered memory: pinned, and known to the device by keys.

use std::io;
use std::sync::Arc;

use ibverbs_sys as ffi;

use super::context::{Domain, pointer};

/// What may be done with registered memory beside reading it for this rank's own sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Peers may write there.
    WrittenByPeers,
    /// Peers may read there, and this rank's own reads may write there.
    ReadByPeersAndFilled,
    /// Peers may read there, and nobody writes.
    ReadByPeers,
}

/// Memory that a device may use.
pub(crate) struct Registration {
    domain: Arc<Domain>,
    raw: *mut ffi::ibv_mr,
}

// SAFETY: as of `Context`; the memory itself belongs to whoever registered it.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers `bytes` from `start` on. Relaxed, what devices write may become visible out of order, but not after the
    /// completion that follows it: quicker on some hosts.
    ///
    /// # Safety
    ///
    /// The memory stays mapped until the registration is dropped, and whoever uses the keys keeps to what else is done
    /// with it.
    pub(crate) unsafe fn new(
        domain: &Arc<Domain>,
        (start, bytes): (*mut u8, usize),
        access: Access,
        relaxed: bool,
    ) -> io::Result<Self> {
        let functions = domain.context.functions;
        let flags = flags(access);
        // SAFETY: the caller vouches for the memory; the library checks that it is mapped.
        let raw = unsafe {
            match functions.reg_mr_iova2 {
                Some(register) if relaxed => {
                    let flags = flags | ffi::ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING.0;
                    register(domain.raw, start.cast(), bytes, start as u64, flags)
                }
                _ => (functions.reg_mr)(domain.raw, start.cast(), bytes, flags as i32),
            }
        };
        Ok(Registration { domain: domain.clone(), raw: pointer(raw)? })
    }

    /// The key by which this rank's work requests name the memory.
    pub(crate) fn local_key(&self) -> u32 {
        // SAFETY: valid until dropped.
        unsafe { (*self.raw).lkey }
    }

    /// The key by which peers name it.
    pub(crate) fn remote_key(&self) -> u32 {
        // SAFETY: valid until dropped.
        unsafe { (*self.raw).rkey }
    }
}

fn flags(access: Access) -> u32 {
    use ffi::ibv_access_flags as flag;
    match access {
        Access::WrittenByPeers => flag::IBV_ACCESS_LOCAL_WRITE.0 | flag::IBV_ACCESS_REMOTE_WRITE.0,
        Access::ReadByPeersAndFilled => flag::IBV_ACCESS_LOCAL_WRITE.0 | flag::IBV_ACCESS_REMOTE_READ.0,
        Access::ReadByPeers => flag::IBV_ACCESS_REMOTE_READ.0,
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.domain.context.is_foreign() {
            // SAFETY: nothing uses the keys any more, or fails cleanly where it does.
            unsafe { (self.domain.context.functions.dereg_mr)(self.raw) };
        }
    }
}
