//! Memory that a call lends to the links, so that devices may reach it while the call runs.

use super::Endpoint;
#[cfg(feature = "rdma")]
use crate::link::Link;

/// Memory that is lent until this is dropped.
pub struct Loan {
    #[cfg(feature = "rdma")]
    _held: crate::rdma::Loan,
    #[cfg(not(feature = "rdma"))]
    _none: std::convert::Infallible,
}

impl std::fmt::Debug for Loan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Loan")
    }
}

impl Endpoint {
    /// Lends `bytes` from `start` on to the links, if any of them gains from it: messages of large memory needn't be copied
    /// then. To be filled, if it `is_target`.
    ///
    /// # Safety
    ///
    /// The memory stays mapped until the loan is dropped; if it is a target, it can be written, and nobody but this endpoint's
    /// links touches what a call of [`Endpoint::recv_into`] has asked for. If a message of it is not finished then,
    /// [`Endpoint::forget_loans`] has been called before.
    #[inline]
    pub unsafe fn lend(&mut self, start: *mut u8, bytes: usize, is_target: bool) -> Option<Loan> {
        #[cfg(feature = "rdma")]
        if crate::rdma::LOAN_BYTES_MIN <= bytes {
            let lender = self.links.iter().flatten().find_map(Link::lender)?;
            // SAFETY: as the caller vouches.
            return unsafe { lender.lend((start, bytes), is_target) }.map(|held| Loan { _held: held });
        }
        let _ = (start, bytes, is_target);
        None
    }

    /// No link goes on with a message from or to lent memory, whatever becomes of it: its call has failed.
    pub fn forget_loans(&mut self) {
        #[cfg(feature = "rdma")]
        self.links.iter_mut().flatten().for_each(Link::forget_loans);
    }
}
