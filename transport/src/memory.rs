//! Memory that peers on the same host may reach directly: anonymous files, mapped by their owner and handed on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// A mapped anonymous file: the owner's mapping can be written, a peer's can't.
///
/// Nothing is named in a file system, the size of /dev/shm doesn't matter, and the kernel frees the memory when the last
/// process that maps it is gone, however it ended. Pages are taken when they are first used.
#[derive(Debug)]
pub struct Region {
    start: *mut u8,
    bytes: usize,
    writable: bool,
    file: OwnedFd,
}

// SAFETY: a region is an address range; whoever reads or writes it says, in its own SAFETY comment, why nobody else does.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Zeroed memory of `bytes`, at least one page.
    ///
    /// # Errors
    ///
    /// The kernel has no memory or no file for it.
    pub fn create(bytes: usize) -> std::io::Result<Region> {
        let bytes = bytes.max(1).next_multiple_of(4096);
        let file = rustix::fs::memfd_create("paceline", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, bytes as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        Region::map(file, bytes, true)
    }

    /// Another rank's memory, mapped for reading.
    ///
    /// # Errors
    ///
    /// The file is shorter than `bytes`, or its owner could still cut it short, so that reading could fault.
    pub fn attach(file: OwnedFd, bytes: usize) -> std::io::Result<Region> {
        let unsound = |what: String| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
        let found = rustix::fs::fstat(&file)?.st_size as u64;
        if found < bytes as u64 {
            return Err(unsound(format!("shared memory of {found} bytes, not {bytes}")));
        }
        if !rustix::fs::fcntl_get_seals(&file)?.contains(SealFlags::SHRINK) {
            return Err(unsound("shared memory that its owner could still cut short".into()));
        }
        Region::map(file, bytes, false)
    }

    fn map(file: OwnedFd, bytes: usize, writable: bool) -> std::io::Result<Region> {
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the kernel's choice; the file is long enough and sealed against
        // shrinking, so no access within `bytes` can fault.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &file, 0) }?.cast();
        Ok(Region { start, bytes, writable, file })
    }

    /// The first byte.
    #[must_use]
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// How many bytes there are.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether this mapping can be written.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// The file, to hand to a peer.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A part of a region, mapped once more: for writing, where the region's own mapping is for reading.
#[derive(Debug)]
pub(crate) struct Stretch {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: as of `Region`.
unsafe impl Send for Stretch {}
// SAFETY: as of `Region`.
unsafe impl Sync for Stretch {}

impl Region {
    /// Maps `bytes` from `offset` on, both multiples of a page and within the region, for writing.
    pub(crate) fn stretch(&self, offset: usize, bytes: usize) -> std::io::Result<Stretch> {
        assert!(offset.is_multiple_of(4096) && offset + bytes <= self.bytes);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as in `map`.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &self.file, offset as u64)
        }?;
        Ok(Stretch { start: start.cast(), bytes })
    }
}

impl Stretch {
    /// The first byte.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }
}

impl Drop for Stretch {
    fn drop(&mut self) {
        unmap(self.start, self.bytes);
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        unmap(self.start, self.bytes);
    }
}

fn unmap(start: *mut u8, bytes: usize) {
    // SAFETY: `Region` and `Stretch` made the mapping, and whatever points into it keeps them alive.
    let unmapped = unsafe { rustix::mm::munmap(start.cast(), bytes) };
    if let Err(error) = unmapped {
        tracing::warn!("unmapping shared memory: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_sees_what_the_owner_writes_and_nothing_shorter() {
        let mine = Region::create(10_000).unwrap();
        assert_eq!(mine.bytes(), 12_288);
        let file = || mine.file().try_clone_to_owned().unwrap();
        let theirs = Region::attach(file(), 12_288).unwrap();
        // SAFETY: both mappings are longer than that, and nobody else knows them.
        unsafe {
            mine.start().add(9_999).write(7);
            assert_eq!(theirs.start().add(9_999).read(), 7);
        }
        assert!(!theirs.is_writable());
        assert!(Region::attach(file(), 12_289).is_err());
    }
}
