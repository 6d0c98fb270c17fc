//! Memory of the host that devices reach: pinned, and at one address for all.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use super::memory::ERRAND_BYTES;
use super::sys::Functions;
use super::{CudaError, Device, bounded};

/// Pinned memory of the host, which every device of this process may read and write at [`HostMemory::device_address`].
///
/// It may be used from any thread, because safe code reaches it by atomic words only; who uses slices or gives addresses to
/// streams says in `unsafe` that nothing else touches them. It begins as zeros.
pub struct HostMemory {
    device: Device,
    address: NonNull<u8>,
    device_address: u64,
    bytes: usize,
}

// SAFETY: the memory belongs to no thread, and what is done with it is atomic or the caller's to order.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`.
const PORTABLE_AND_MAPPED: u32 = 1 | 2;

impl Device {
    /// Takes pinned memory of the host, in whole pages, filled with zeros.
    ///
    /// # Errors
    /// If the host has too little memory, for 0 bytes, or if the context is lost.
    pub fn pinned(&self, bytes: usize) -> Result<HostMemory, CudaError> {
        if bytes == 0 {
            return Err(CudaError::refused("allocate pinned memory", "0 bytes are none"));
        }
        let _current = self.outside_capture()?;
        let mut address: *mut c_void = std::ptr::null_mut();
        // SAFETY: the driver writes one address; what it gives is freed in `drop`.
        let code = unsafe { (self.functions().cuMemHostAlloc)(&raw mut address, bytes, PORTABLE_AND_MAPPED) };
        let detail = || format!("asked for {bytes} bytes of pinned memory");
        self.check("cuMemHostAlloc", code).map_err(|error| error.with(detail))?;
        let address = NonNull::new(address.cast::<u8>())
            .ok_or_else(|| CudaError::refused("allocate pinned memory", "the driver gave none, and no reason"))?;
        let mut memory = HostMemory { device: self.clone(), address, device_address: 0, bytes };
        // SAFETY: so many bytes are there, and nobody else knows of them yet; the driver writes one address.
        let code = unsafe {
            address.as_ptr().write_bytes(0, bytes);
            let address = address.as_ptr().cast();
            (self.functions().cuMemHostGetDevicePointer_v2)(&raw mut memory.device_address, address, 0)
        };
        self.check("cuMemHostGetDevicePointer", code)?;
        Ok(memory)
    }
}

/// Pinned memory that is kept for the next errand, as the driver knows it: freeing it would wait for all that the device does,
/// which may be waiting for whoever frees.
pub(super) struct Spare {
    address: usize,
    device_address: u64,
}

impl Device {
    /// Pinned memory of [`ERRAND_BYTES`] bytes, whatever is in it.
    pub(super) fn errand(&self) -> Result<HostMemory, CudaError> {
        let Some(Spare { address, device_address }) = self.take_spare() else { return self.pinned(ERRAND_BYTES) };
        let address = NonNull::new(std::ptr::with_exposed_provenance_mut(address)).expect("it was allocated");
        Ok(HostMemory { device: self.clone(), address, device_address, bytes: ERRAND_BYTES })
    }
}

impl HostMemory {
    /// Keeps the memory of an errand for the next one.
    pub(super) fn spare(self) {
        let this = ManuallyDrop::new(self);
        let spare = Spare { address: this.address.as_ptr().expose_provenance(), device_address: this.device_address };
        this.device.keep_spare(spare);
        // SAFETY: the rest of it isn't looked at again.
        drop(unsafe { std::ptr::read(&raw const this.device) });
    }

    /// The device through which it was taken.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Its first byte, for this process.
    #[must_use]
    pub fn address(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// Its first byte's address for devices.
    #[must_use]
    pub fn device_address(&self) -> u64 {
        self.device_address
    }

    /// How much it is.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The word at 4 times `index` bytes. Devices write it by [`super::Stream::write_value`] and wait for it by
    /// [`super::Stream::wait_value`].
    ///
    /// # Panics
    /// If it lies beyond the end.
    #[must_use]
    pub fn word(&self, index: usize) -> &AtomicU32 {
        let n_words = self.bytes / 4;
        assert!(index < n_words, "word {index} of {n_words}");
        // SAFETY: the word lies in the memory, which is aligned to pages and lives as long as this; all that safe code does
        // with it is atomic, and devices write whole words.
        unsafe { AtomicU32::from_ptr(self.address.as_ptr().cast::<u32>().add(index)) }
    }

    /// The bytes of a part.
    ///
    /// # Safety
    /// While the slice is used nobody writes there: no device, no thread.
    ///
    /// # Panics
    /// If the part isn't in the memory.
    #[must_use]
    pub unsafe fn slice(&self, part: Range<usize>) -> &[u8] {
        self.check_part(part.start, part.len());
        // SAFETY: the part lies in the memory, which was filled; that nobody writes is the caller's word.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr().add(part.start), part.len()) }
    }

    /// The bytes of a part, to be written.
    ///
    /// # Safety
    /// While the slice is used nobody else reads or writes there: no device, no thread, no other slice.
    ///
    /// # Panics
    /// If the part isn't in the memory.
    #[must_use]
    #[expect(clippy::mut_from_ref, reason = "several parts may be written at a time, which the caller keeps apart")]
    pub unsafe fn slice_mut(&self, part: Range<usize>) -> &mut [u8] {
        self.check_part(part.start, part.len());
        // SAFETY: the part lies in the memory, which was filled; that nobody else uses it is the caller's word.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr().add(part.start), part.len()) }
    }

    fn check_part(&self, offset: usize, bytes: usize) {
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(fits, "{bytes} bytes from {offset} on aren't in {} bytes of pinned memory", self.bytes);
    }
}

impl Spare {
    /// Frees it.
    ///
    /// # Safety
    /// The context in which it was allocated is current.
    pub(super) unsafe fn free(self, functions: &Functions) -> u32 {
        // SAFETY: it is an allocation of this module's, and is owned here.
        unsafe { (functions.cuMemFreeHost)(std::ptr::with_exposed_provenance_mut(self.address)) }
    }
}

impl std::fmt::Debug for HostMemory {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} bytes of pinned memory at {:p}", self.bytes, self.address)
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if self.device.is_foreign() {
            return;
        }
        let (device, address) = (self.device.clone(), self.address.as_ptr().expose_provenance());
        bounded::give_back("pinned memory", device.ordinal(), move || {
            let _current = device.outside_capture()?;
            let address = std::ptr::with_exposed_provenance_mut(address);
            // SAFETY: it is an allocation of this type's, whose only owner is being dropped.
            device.check("cuMemFreeHost", unsafe { (device.functions().cuMemFreeHost)(address) })
        });
    }
}
