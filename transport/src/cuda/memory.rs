//! Memory of a device.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{CudaError, Device, HostMemory, IpcHandle, Priority, Stream, bounded};

/// How long the short works of this module (clearing, reading and writing memory) may take on the device.
pub(super) const ERRAND: Duration = Duration::from_secs(30);
/// How much is copied at once.
pub(super) const ERRAND_BYTES: usize = 1 << 20;

/// Memory of a device, of its own allocation, which other processes of the host may open ([`DeviceMemory::export`]).
///
/// It may be used from any thread: all that this type does with its content is moved by the device, in the order of the
/// calls; what streams do with it is theirs to order. It is freed when dropped, which must be after the device's last use of it.
/// Freeing may wait until the device has done what else it was given before, but a drop doesn't wait for ever: after five
/// seconds a thread goes on waiting.
pub struct DeviceMemory {
    device: Device,
    address: u64,
    bytes: usize,
    /// The device still does something with it of which nobody will know when it is done.
    is_lost: AtomicBool,
}

impl Device {
    /// Takes memory of the device (`cuMemAlloc`), aligned to 256 bytes. Its content is anything.
    ///
    /// Other processes that open a part of a block of 2 MiB may see all of it; who must keep them from that asks for multiples
    /// of 2 MiB.
    ///
    /// # Errors
    /// Without enough free memory, for 0 bytes, or if the context is lost.
    pub fn allocate(&self, bytes: usize) -> Result<DeviceMemory, CudaError> {
        if bytes == 0 {
            return Err(CudaError::refused("allocate", "0 bytes of device memory are none"));
        }
        let _current = self.outside_capture()?;
        let mut address = 0;
        // SAFETY: the driver writes one address; what it gives is freed in `drop`.
        let code = unsafe { (self.functions().cuMemAlloc_v2)(&raw mut address, bytes) };
        self.check("cuMemAlloc", code).map_err(|error| {
            let free = self.free_memory().map_or_else(|_| "an unknown number of".to_owned(), |free| free.to_string());
            error.with(|| format!("asked for {bytes} bytes, {free} of {} are free", self.total_memory()))
        })?;
        Ok(DeviceMemory { device: self.clone(), address, bytes, is_lost: AtomicBool::new(false) })
    }
}

impl DeviceMemory {
    /// The device that has it.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Its first byte's address, on this device and on those that may access it.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How much it is.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Fills it with zeros, and waits until it is done.
    ///
    /// # Errors
    /// If it takes more than 30 seconds, or if the context is lost.
    pub fn zero(&self) -> Result<(), CudaError> {
        let stream = self.device.stream(Priority::Normal)?;
        let current = self.device.make_current()?;
        // SAFETY: the memory is this, and is held until it is done, or for ever.
        let code = unsafe { (self.device.functions().cuMemsetD8Async)(self.address, 0, self.bytes, stream.raw()) };
        drop(current);
        self.device.check("cuMemsetD8Async", code)?;
        self.kept(stream.synchronize(Instant::now() + ERRAND))
    }

    /// Copies `from` to the byte `offset` and those after it, and waits until it is done.
    ///
    /// # Errors
    /// If it doesn't fit, takes more than 30 seconds, or if the context is lost.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), CudaError> {
        let at = self.part("write", offset, from.len())?;
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: the part lies in this memory.
        self.kept(unsafe { write(&self.device, at.start, from) })
    }

    /// Copies the bytes from `offset` on into `into`, and waits until it is done.
    ///
    /// # Errors
    /// If there are fewer, if it takes more than 30 seconds, or if the context is lost.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), CudaError> {
        let at = self.part("read", offset, into.len())?;
        if into.is_empty() {
            return Ok(());
        }
        // SAFETY: the part lies in this memory.
        self.kept(unsafe { read(&self.device, at.start, into) })
    }

    /// A handle by which other processes of this host open the memory. It holds nothing: they must have closed it when this is
    /// dropped, or what they do with it is undefined.
    ///
    /// # Errors
    /// Where the device or the system has no CUDA IPC.
    pub fn export(&self) -> Result<IpcHandle, CudaError> {
        IpcHandle::of_memory(&self.device, self.address)
    }

    /// Keeps the memory for ever if the device may still use it.
    fn kept(&self, done: Result<(), CudaError>) -> Result<(), CudaError> {
        done.inspect_err(|error| {
            let is_late = matches!(error, CudaError::TimedOut { .. });
            self.is_lost.fetch_or(is_late, Ordering::Relaxed);
        })
    }

    fn part(&self, what: &'static str, offset: usize, bytes: usize) -> Result<Range<u64>, CudaError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(self.address + offset as u64..self.address + end as u64),
            _ => Err(CudaError::refused(
                what,
                format!("{bytes} bytes from {offset} on aren't in {} bytes of device memory", self.bytes),
            )),
        }
    }
}

impl Device {
    /// Copies from an address into `into`, and waits until it is done.
    ///
    /// # Safety
    /// As many bytes can be read there by the device.
    ///
    /// # Errors
    /// If it takes more than 30 seconds, or if the context is lost.
    pub unsafe fn read_at(&self, address: u64, into: &mut [u8]) -> Result<(), CudaError> {
        // SAFETY: passed on from the caller.
        unsafe { read(self, address, into) }
    }
}

/// Copies to an address that `device` can write.
///
/// # Safety
/// As many bytes can be written there by the device.
unsafe fn write(device: &Device, address: u64, from: &[u8]) -> Result<(), CudaError> {
    let mut pinned = device.errand()?;
    for (part, from) in (address..).step_by(ERRAND_BYTES).zip(from.chunks(ERRAND_BYTES)) {
        // SAFETY: nobody else knows of the pinned memory, and the device is done with it; the rest is the caller's word.
        unsafe {
            pinned.slice_mut(0..from.len()).copy_from_slice(from);
            pinned = pinned.exchange(|stream, host| stream.copy(part, host, from.len()))?;
        }
    }
    pinned.spare();
    Ok(())
}

/// Copies what is at an address that `device` can read.
///
/// # Safety
/// As many bytes can be read there by the device.
pub(super) unsafe fn read(device: &Device, address: u64, into: &mut [u8]) -> Result<(), CudaError> {
    let mut pinned = device.errand()?;
    for (part, into) in (address..).step_by(ERRAND_BYTES).zip(into.chunks_mut(ERRAND_BYTES)) {
        // SAFETY: as above.
        unsafe {
            pinned = pinned.exchange(|stream, host| stream.copy(host, part, into.len()))?;
            into.copy_from_slice(pinned.slice(0..into.len()));
        }
    }
    pinned.spare();
    Ok(())
}

impl HostMemory {
    /// Runs one copy from or to this memory on a stream of its own, and gives the memory back when it is done. If that takes too
    /// long the memory is leaked, because the device may still use it.
    ///
    /// # Safety
    /// The copy has only this memory and memory that the device can use.
    unsafe fn exchange(
        self,
        copy: impl FnOnce(&Stream, u64) -> Result<(), CudaError>,
    ) -> Result<HostMemory, CudaError> {
        let done = self.device().stream(Priority::Normal).and_then(|stream| {
            copy(&stream, self.device_address())?;
            stream.synchronize(Instant::now() + ERRAND)
        });
        match done {
            Ok(()) => Ok(self),
            Err(error) => {
                std::mem::forget(self);
                Err(error)
            }
        }
    }
}

impl std::fmt::Debug for DeviceMemory {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} bytes at {:#x} on CUDA device {}", self.bytes, self.address, self.device.ordinal())
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.device.is_foreign() {
            return;
        }
        if *self.is_lost.get_mut() {
            tracing::warn!("{self:?} stays taken: the device was too slow to say that it is done with it");
            return;
        }
        let (device, address) = (self.device.clone(), self.address);
        bounded::give_back("device memory", device.ordinal(), move || {
            let _current = device.outside_capture()?;
            // SAFETY: it is an allocation of this type's, whose only owner is being dropped.
            device.check("cuMemFree", unsafe { (device.functions().cuMemFree_v2)(address) })
        });
    }
}
