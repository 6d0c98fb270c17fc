//! Mappings of memory, with pages around them that nobody may touch, and which stay so for a while when they are gone.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Mutex;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Result;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::handle::lock;

/// What memory is counted and mapped in, in bytes.
pub const PAGE: usize = 4096;

/// Pages of this process.
pub struct Mapping {
    /// With the pages around it.
    outside: *mut c_void,
    /// Without, in bytes: a multiple of pages.
    bytes: usize,
}

// SAFETY: a mapping is a range of addresses; what is in it is guarded by who uses it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Ranges that were given back, and are kept untouchable, so that their addresses mean nothing new soon.
static GONE: Mutex<VecDeque<(usize, usize)>> = Mutex::new(VecDeque::new());

/// How many of them there are.
const GONE_MAX: usize = 1024;

impl Mapping {
    /// `bytes` bytes (a multiple of pages) of `file`, shared, or of this process alone.
    pub fn new(file: Option<BorrowedFd<'_>>, bytes: usize) -> Result<Mapping> {
        assert!(bytes > 0 && bytes.is_multiple_of(PAGE), "{bytes} bytes are not whole pages");
        let around = bytes + 2 * PAGE;
        // SAFETY: new pages, at an address that the kernel chooses.
        let outside = unsafe {
            mmap_anonymous(ptr::null_mut(), around, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)?
        };
        let mapping = Mapping { outside, bytes };
        let inside = mapping.address() as *mut c_void;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the range lies in the pages that were mapped above, which nobody else knows of.
        unsafe {
            match file {
                Some(file) => mmap(inside, bytes, access, MapFlags::SHARED | MapFlags::FIXED, file, 0)?,
                None => {
                    mmap_anonymous(inside, bytes, access, MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE)?
                }
            };
        }
        Ok(mapping)
    }

    /// Where it begins.
    pub fn address(&self) -> u64 {
        self.outside as u64 + PAGE as u64
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let around = self.bytes + 2 * PAGE;
        // SAFETY: the range is this mapping's own, and nobody has it any more; what it held goes.
        let replaced = unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
            mmap_anonymous(self.outside, around, ProtFlags::empty(), flags)
        };
        if replaced.is_err() {
            return;
        }
        let mut gone = lock(&GONE);
        gone.push_back((self.outside as usize, around));
        if gone.len() > GONE_MAX {
            let (address, bytes) = gone.pop_front().expect("there are many");
            // SAFETY: the range was replaced by untouchable pages above, and is nobody's.
            let _ = unsafe { munmap(address as *mut c_void, bytes) };
        }
    }
}

/// New memory that other processes can map, under a name that only tells it from others.
pub fn shared_file(name: &str, bytes: usize) -> Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC)?;
    ftruncate(file.as_fd(), bytes as u64)?;
    Ok(file)
}

/// `bytes` in whole pages.
pub fn in_pages(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(PAGE)
}
