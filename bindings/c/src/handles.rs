//! The table behind the handles: what C holds is a number, never an address.
//!
//! A number has the kind of thing in its lowest bits and a mark in its highest, which makes it no address that a processor
//! follows. None is given out twice, so that a handle that was freed is known for one for ever. A thread remembers the last
//! communicator it used, weakly: the usual call looks nothing up, and what another thread frees is freed.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Failure;

const MARK: u64 = 0x9ac1 << 48;
const KIND_BITS: u32 = 4;

const _: () = assert!(usize::BITS == 64, "handles are numbers of 64 bits");

/// What a handle is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Kind {
    Comm = 1,
    Work = 2,
    Registration = 3,
}

const NAMES: [&str; 4] = ["nothing", "a pclComm_t", "a pclWork_t", "a handle of pclCommRegister"];

/// All things of one kind that have handles.
pub(crate) struct Room<T> {
    kind: Kind,
    next: AtomicU64,
    things: Mutex<Option<HashMap<u64, Arc<T>>>>,
}

impl<T> Room<T> {
    pub(crate) const fn new(kind: Kind) -> Room<T> {
        Room { kind, next: AtomicU64::new(1), things: Mutex::new(None) }
    }

    fn things(&self) -> MutexGuard<'_, Option<HashMap<u64, Arc<T>>>> {
        self.things.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle for `thing`.
    pub(crate) fn admit(&self, thing: Arc<T>) -> *mut c_void {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.things().get_or_insert_default().insert(number, thing);
        std::ptr::without_provenance_mut((MARK | number << KIND_BITS | self.kind as u64) as usize)
    }

    pub(crate) fn find(&self, handle: *mut c_void) -> Result<Arc<T>, Failure> {
        let number = self.number(handle)?;
        let found = self.things().as_ref().and_then(|things| things.get(&number).cloned());
        found.ok_or_else(|| self.freed(handle))
    }

    /// Takes the handle back.
    pub(crate) fn dismiss(&self, handle: *mut c_void) -> Result<Arc<T>, Failure> {
        let number = self.number(handle)?;
        let found = self.things().as_mut().and_then(|things| things.remove(&number));
        found.ok_or_else(|| self.freed(handle))
    }

    /// The number in a handle that this room has given out.
    fn number(&self, handle: *mut c_void) -> Result<u64, Failure> {
        let name = NAMES[self.kind as usize];
        let bits = handle.addr() as u64;
        if bits == 0 {
            return Err(Failure::argument(format!("the handle is NULL where {name} is needed")));
        }
        let (kind, number) = (bits & ((1 << KIND_BITS) - 1), (bits ^ MARK) >> KIND_BITS);
        if number >> (48 - KIND_BITS) != 0 || kind == 0 || kind as usize >= NAMES.len() {
            return Err(Failure::argument(format!("{handle:p} is no handle, but {name} is needed")));
        }
        if kind != self.kind as u64 {
            return Err(Failure::argument(format!("{} is given where {name} is needed", NAMES[kind as usize])));
        }
        if number == 0 || self.next.load(Ordering::Relaxed) <= number {
            return Err(Failure::argument(format!("{handle:p} was never given out as {name}")));
        }
        Ok(number)
    }

    #[cold]
    pub(crate) fn freed(&self, handle: *mut c_void) -> Failure {
        Failure::argument(format!("{handle:p}, {}, was freed before", NAMES[self.kind as usize]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static NUMBERS: Room<u32> = Room::new(Kind::Work);
    static OTHERS: Room<u32> = Room::new(Kind::Comm);

    fn why(handle: *mut c_void) -> String {
        NUMBERS.find(handle).unwrap_err().text
    }

    #[test]
    fn what_was_not_given_out_or_taken_back_is_told_apart() {
        let (first, second) = (NUMBERS.admit(Arc::new(7)), NUMBERS.admit(Arc::new(8)));
        assert_eq!((*NUMBERS.find(first).unwrap(), *NUMBERS.find(second).unwrap()), (7, 8));
        assert_eq!(*NUMBERS.dismiss(first).unwrap(), 7);
        assert!(why(first).ends_with("was freed before"), "{}", why(first));
        assert!(NUMBERS.dismiss(first).is_err());
        assert_eq!(*NUMBERS.find(second).unwrap(), 8);
        assert!(why(std::ptr::null_mut()).contains("NULL"));
        let at = std::ptr::without_provenance_mut::<c_void>;
        for garbage in [1, 0x7fff_1234_5678, usize::MAX, second.addr() ^ 1 << 60] {
            assert!(why(at(garbage)).contains("is no handle"), "{}", why(at(garbage)));
        }
        assert!(why(at(second.addr() + 16)).contains("never given out"));
        assert!(why(OTHERS.admit(Arc::new(9))).starts_with("a pclComm_t is given where a pclWork_t"));
    }
}
