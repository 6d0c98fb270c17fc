//! Events: marks in streams, which other streams, the host and other processes can wait for.

use std::time::{Duration, Instant};

use cudarc::driver::sys as ffi;

use super::error::Code;
use super::stream::poll_until;
use super::{CudaError, Device, IpcHandle, bounded};

/// A mark that a stream reaches ([`super::Stream::record`]). It may be used from any thread.
pub struct Event {
    device: Device,
    raw: ffi::CUevent,
}

// SAFETY: the driver's functions may be called from any thread for any event.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;

impl Event {
    /// An event that says only whether it was reached, which is the quickest.
    ///
    /// # Errors
    /// If the context is lost, or in a forked process.
    pub fn new(device: &Device) -> Result<Event, CudaError> {
        Event::with_flags(device, DISABLE_TIMING)
    }

    /// An event that also knows when it was reached ([`Event::elapsed`]).
    ///
    /// # Errors
    /// As of [`Event::new`].
    pub fn with_timing(device: &Device) -> Result<Event, CudaError> {
        Event::with_flags(device, 0)
    }

    /// An event that other processes can open ([`Event::export`]). It knows no times.
    ///
    /// # Errors
    /// As of [`Event::new`], and where there is no CUDA IPC.
    pub fn shareable(device: &Device) -> Result<Event, CudaError> {
        Event::with_flags(device, DISABLE_TIMING | INTERPROCESS)
    }

    fn with_flags(device: &Device, flags: u32) -> Result<Event, CudaError> {
        let _current = device.make_current()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the driver writes one pointer; the event is destroyed in `drop`.
        device.check("cuEventCreate", unsafe { (device.functions().cuEventCreate)(&raw mut raw, flags) })?;
        Ok(Event::from_raw(device, raw))
    }

    /// Takes over an event of this device.
    pub(super) fn from_raw(device: &Device, raw: ffi::CUevent) -> Event {
        Event { device: device.clone(), raw }
    }

    pub(super) fn raw(&self) -> ffi::CUevent {
        self.raw
    }

    /// The device that it belongs to.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Whether all that was before it in its stream is done; also true if it was never recorded.
    ///
    /// # Errors
    /// If what was before it failed, if the context is lost, or if it was last recorded into a graph.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        let _current = self.device.outside_capture()?;
        // SAFETY: the event is held.
        match unsafe { (self.device.functions().cuEventQuery)(self.raw) } {
            Code::NOT_READY => Ok(false),
            code => self.device.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Waits until [`Event::is_done`].
    ///
    /// # Errors
    /// As of [`Event::is_done`], and if it isn't done by the deadline.
    pub fn synchronize(&self, deadline: Instant) -> Result<(), CudaError> {
        poll_until("waiting for an event", self.device.ordinal(), deadline, || self.is_done())
    }

    /// The time between two events that both have timing and are done; it is good to about half a microsecond.
    ///
    /// # Errors
    /// If one isn't done or has no timing, or if they belong to different devices.
    pub fn elapsed(&self, until: &Event) -> Result<Duration, CudaError> {
        let _current = self.device.outside_capture()?;
        let mut milliseconds = 0.0;
        // SAFETY: the driver writes one number; both events are held.
        let code = unsafe { (self.device.functions().cuEventElapsedTime)(&raw mut milliseconds, self.raw, until.raw) };
        self.device.check("cuEventElapsedTime", code)?;
        Ok(Duration::try_from_secs_f32(milliseconds / 1e3).unwrap_or_default())
    }

    /// A handle by which other processes of this host open the event ([`Device::import_event`]). It must not be dropped while
    /// they use it.
    ///
    /// # Errors
    /// If it isn't [`Event::shareable`], or where there is no CUDA IPC.
    pub fn export(&self) -> Result<IpcHandle, CudaError> {
        let _current = self.device.outside_capture()?;
        let mut handle = ffi::CUipcEventHandle { reserved: [0; 64] };
        // SAFETY: the driver writes the 64 bytes; the event is held.
        let code = unsafe { (self.device.functions().cuIpcGetEventHandle)(&raw mut handle, self.raw) };
        self.device.check("cuIpcGetEventHandle", code)?;
        Ok(IpcHandle(handle.reserved.map(|byte| byte as u8)))
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "event {:p} on CUDA device {}", self.raw, self.device.ordinal())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.device.is_foreign() {
            return;
        }
        let destroyed = self.device.make_current().and_then(|_current| {
            // SAFETY: it is held by nobody else; where a stream still has it, the driver destroys it when that is done.
            self.device.check("cuEventDestroy", unsafe { (self.device.functions().cuEventDestroy_v2)(self.raw) })
        });
        bounded::report("an event", self.device.ordinal(), destroyed);
    }
}
