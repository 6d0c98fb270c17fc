//! Streams: what the device does one after the other.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys as ffi;

use super::error::Code;
use super::{CudaError, Device, Event, Function, bounded};

/// A stream of a device; clones are the same one. It may be used from any thread; calls from several are in an order of the
/// driver's choice.
///
/// A call only adds to the stream, and returns before the device has done it. What fails on the device is told by some later
/// call. Where addresses are given the call is `unsafe`, because nothing holds what lies there until the device is done.
#[derive(Clone)]
pub struct Stream(Arc<Lane>);

struct Lane {
    device: Device,
    raw: ffi::CUstream,
    owner: Owner,
}

/// Who destroys the stream.
enum Owner {
    Here,
    Caller,
    Cudarc { stream: Arc<cudarc::driver::CudaStream> },
}

// SAFETY: the driver's functions may be called from any thread for any stream.
unsafe impl Send for Lane {}
// SAFETY: as above.
unsafe impl Sync for Lane {}

/// Whether a stream's kernels begin before those of others that wait for a multiprocessor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Priority {
    /// The device's default.
    Normal,
    /// The highest that the device has.
    High,
}

/// What a stream waits for at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// The word is the value.
    Equal,
    /// The word has reached the value, counted cyclically: their difference as a signed number isn't negative.
    AtLeast,
}

/// How many threads a kernel is started with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Blocks, at least 1.
    pub blocks: u32,
    /// Threads of each block, 1 to 1024.
    pub threads: u32,
    /// Bytes of memory that each block's threads share, beside what the kernel declares.
    pub shared_bytes: u32,
}

const NON_BLOCKING: u32 = 1;

impl Device {
    /// Makes a stream, which doesn't wait for the default stream, nor that for it.
    ///
    /// # Errors
    /// If the context is lost, or in a forked process.
    pub fn stream(&self, priority: Priority) -> Result<Stream, CudaError> {
        let _current = self.outside_capture()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: the driver writes both numbers.
        let code = unsafe { (self.functions().cuCtxGetStreamPriorityRange)(&raw mut least, &raw mut greatest) };
        self.check("cuCtxGetStreamPriorityRange", code)?;
        // Smaller numbers go first, and 0 is the default.
        let number = if priority == Priority::High { greatest } else { 0 };
        let mut raw = std::ptr::null_mut();
        // SAFETY: the driver writes one pointer; the stream is destroyed in `drop`.
        let code = unsafe { (self.functions().cuStreamCreateWithPriority)(&raw mut raw, NON_BLOCKING, number) };
        self.check("cuStreamCreate", code)?;
        Ok(Stream(Arc::new(Lane { device: self.clone(), raw, owner: Owner::Here })))
    }
}

impl Stream {
    /// A stream that somebody else has made and destroys: a `CUstream`, which is a `cudaStream_t` too. Null is the default
    /// stream.
    ///
    /// # Safety
    /// It is a stream of the device's primary context, and isn't destroyed before the last clone and what was made of it.
    #[must_use]
    pub unsafe fn borrowed(device: &Device, raw: *mut c_void) -> Stream {
        Stream(Arc::new(Lane { device: device.clone(), raw: raw.cast(), owner: Owner::Caller }))
    }

    /// A stream of `cudarc`, such as candle's, which is held as long as this.
    ///
    /// # Errors
    /// If its context isn't the device's primary one.
    pub fn from_cudarc(stream: &Arc<cudarc::driver::CudaStream>) -> Result<Stream, CudaError> {
        let device = Device::open(stream.context().ordinal())?;
        if stream.context().cu_ctx() != device.context() {
            let reason = "its context isn't the device's primary context: make it with `CudaContext::new`";
            return Err(CudaError::refused("use a stream of cudarc", reason));
        }
        let owner = Owner::Cudarc { stream: stream.clone() };
        Ok(Stream(Arc::new(Lane { device, raw: stream.cu_stream(), owner })))
    }

    /// The device that it belongs to.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The `CUstream`.
    #[must_use]
    pub fn as_raw(&self) -> *mut c_void {
        self.0.raw.cast()
    }

    /// The stream of `cudarc` that it was made of, if it was.
    #[must_use]
    pub fn cudarc(&self) -> Option<&Arc<cudarc::driver::CudaStream>> {
        match &self.0.owner {
            Owner::Cudarc { stream } => Some(stream),
            Owner::Here | Owner::Caller => None,
        }
    }

    pub(super) fn raw(&self) -> ffi::CUstream {
        self.0.raw
    }

    /// Copies between any memory that the device can reach: its own, peers', pinned.
    ///
    /// # Safety
    /// Both ranges are such memory until the device has done it, and meanwhile nobody writes the source or uses the target.
    ///
    /// # Errors
    /// If the driver doesn't know one of the addresses, or if the context is lost.
    pub unsafe fn copy(&self, target: u64, source: u64, bytes: usize) -> Result<(), CudaError> {
        let _current = self.0.device.make_current()?;
        // SAFETY: the ranges are as the caller says.
        let code = unsafe { (self.functions().cuMemcpyAsync)(target, source, bytes, self.0.raw) };
        self.check("cuMemcpyAsync", code).map_err(|error| error.with(|| copied(target, source, bytes)))
    }

    /// Copies from any memory of the host. If it isn't pinned, the call may wait for the stream.
    ///
    /// # Safety
    /// As of [`Stream::copy`].
    ///
    /// # Errors
    /// As of [`Stream::copy`].
    pub unsafe fn copy_from_host(&self, target: u64, source: *const u8, bytes: usize) -> Result<(), CudaError> {
        let _current = self.0.device.make_current()?;
        // SAFETY: the ranges are as the caller says.
        let code = unsafe { (self.functions().cuMemcpyHtoDAsync_v2)(target, source.cast(), bytes, self.0.raw) };
        let detail = || copied(target, source.addr() as u64, bytes);
        self.check("cuMemcpyHtoDAsync", code).map_err(|error| error.with(detail))
    }

    /// Copies to any memory of the host. If it isn't pinned, the call may wait for the stream.
    ///
    /// # Safety
    /// As of [`Stream::copy`].
    ///
    /// # Errors
    /// As of [`Stream::copy`].
    pub unsafe fn copy_to_host(&self, target: *mut u8, source: u64, bytes: usize) -> Result<(), CudaError> {
        let _current = self.0.device.make_current()?;
        // SAFETY: the ranges are as the caller says.
        let code = unsafe { (self.functions().cuMemcpyDtoHAsync_v2)(target.cast(), source, bytes, self.0.raw) };
        let detail = || copied(target.addr() as u64, source, bytes);
        self.check("cuMemcpyDtoHAsync", code).map_err(|error| error.with(detail))
    }

    /// Lets the stream wait until the word at the address is as said. What others wrote before they wrote the word is seen by
    /// what comes after in this stream.
    ///
    /// The wait has no end of its own: whoever writes the word must do so even when it gives up.
    ///
    /// # Safety
    /// The address is that of a word in memory that the device can reach until the stream has gone on.
    ///
    /// # Errors
    /// If the address is no multiple of 4, where the device has no such waits ([`Device::can_wait_on_values`]), or if the
    /// context is lost.
    pub unsafe fn wait_value(&self, address: u64, value: u32, comparison: Comparison) -> Result<(), CudaError> {
        aligned("wait for a value", address)?;
        let flags = match comparison {
            Comparison::AtLeast => 0,
            Comparison::Equal => 1,
        };
        let _current = self.0.device.make_current()?;
        // SAFETY: the word is as the caller says.
        let code = unsafe { (self.functions().cuStreamWaitValue32_v2)(self.0.raw, address, value, flags) };
        self.check("cuStreamWaitValue32", code).map_err(|error| error.with(|| format!("at {address:#x}")))
    }

    /// Writes the word at the address. Whoever sees it sees all that was before in this stream.
    ///
    /// # Safety
    /// As of [`Stream::wait_value`].
    ///
    /// # Errors
    /// As of [`Stream::wait_value`].
    pub unsafe fn write_value(&self, address: u64, value: u32) -> Result<(), CudaError> {
        aligned("write a value", address)?;
        let _current = self.0.device.make_current()?;
        // SAFETY: the word is as the caller says; without flags all writes before it become visible first.
        let code = unsafe { (self.functions().cuStreamWriteValue32_v2)(self.0.raw, address, value, 0) };
        self.check("cuStreamWriteValue32", code).map_err(|error| error.with(|| format!("at {address:#x}")))
    }

    /// Starts a kernel that takes one argument, by value; its bytes are copied before the call returns.
    ///
    /// # Safety
    /// The argument has the kernel's type, and what the kernel reads and writes is there until the device has done it.
    ///
    /// # Errors
    /// If the shape isn't one that the device has, or if the context is lost.
    pub unsafe fn launch(&self, kernel: &Function, shape: Shape, argument: &[u8]) -> Result<(), CudaError> {
        let _current = self.0.device.make_current()?;
        let Shape { blocks, threads, shared_bytes } = shape;
        let mut parameters = [argument.as_ptr().cast::<c_void>().cast_mut()];
        let (argument, none) = (parameters.as_mut_ptr(), std::ptr::null_mut());
        let (function, launch) = (kernel.raw(), self.functions().cuLaunchKernel);
        // SAFETY: the kernel is as the caller says, and the driver only reads the argument.
        let code = unsafe { launch(function, blocks, 1, 1, threads, 1, 1, shared_bytes, self.0.raw, argument, none) };
        self.check("cuLaunchKernel", code).map_err(|error| {
            error.with(|| {
                format!(
                    "{} with {blocks} blocks of {threads} threads and {shared_bytes} shared bytes each",
                    kernel.name()
                )
            })
        })
    }

    /// Marks the place that the stream has reached with all that it was given.
    ///
    /// # Errors
    /// If the event is another device's, or if the context is lost.
    pub fn record(&self, event: &Event) -> Result<(), CudaError> {
        let _current = self.0.device.make_current()?;
        // SAFETY: stream and event are held; if the event is dropped before it is reached the driver destroys it later.
        self.check("cuEventRecord", unsafe { (self.functions().cuEventRecord)(event.raw(), self.0.raw) })
    }

    /// Lets the stream wait for an event, of any device or process, as it was last recorded; not at all if it never was.
    ///
    /// # Errors
    /// If the context is lost, or if the event belongs to another capture.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        let _current = self.0.device.make_current()?;
        // SAFETY: as of `record`.
        self.check("cuStreamWaitEvent", unsafe { (self.functions().cuStreamWaitEvent)(self.0.raw, event.raw(), 0) })
    }

    /// Whether the stream has done all that it was given.
    ///
    /// # Errors
    /// If something of it failed, if it is being captured, or if the context is lost.
    pub fn is_idle(&self) -> Result<bool, CudaError> {
        self.not_capturing("ask whether a stream is idle")?;
        self.query()
    }

    /// Waits until the stream has done all that it was given.
    ///
    /// # Errors
    /// As of [`Stream::is_idle`], and if it isn't done by the deadline.
    pub fn synchronize(&self, deadline: Instant) -> Result<(), CudaError> {
        self.not_capturing("wait for a stream")?;
        poll_until("waiting for a stream", self.0.device.ordinal(), deadline, || self.query())
    }

    /// Whether what it is given is being collected for a graph, instead of being done.
    ///
    /// # Errors
    /// If it is the default stream and another is being captured, or if the context is lost.
    pub fn is_capturing(&self) -> Result<bool, CudaError> {
        let _current = self.0.device.make_current()?;
        let mut status = 0;
        // SAFETY: the driver writes one number.
        let code = unsafe { (self.functions().cuStreamIsCapturing)(self.0.raw, &raw mut status) };
        self.check("cuStreamIsCapturing", code)?;
        Ok(status != 0)
    }

    /// To ask a stream that is being captured would spoil the capture.
    pub(super) fn not_capturing(&self, what: &'static str) -> Result<(), CudaError> {
        if self.is_capturing()? {
            return Err(CudaError::refused(what, "the stream is being captured into a graph: end the capture first"));
        }
        Ok(())
    }

    fn query(&self) -> Result<bool, CudaError> {
        let _current = self.0.device.outside_capture()?;
        // SAFETY: the stream is held.
        match unsafe { (self.functions().cuStreamQuery)(self.0.raw) } {
            Code::NOT_READY => Ok(false),
            code => self.check("cuStreamQuery", code).map(|()| true),
        }
    }

    pub(super) fn functions(&self) -> &'static super::sys::Functions {
        self.0.device.functions()
    }

    pub(super) fn check(&self, call: &'static str, code: u32) -> Result<(), CudaError> {
        self.0.device.check(call, code)
    }
}

fn copied(target: u64, source: u64, bytes: usize) -> String {
    format!("{bytes} bytes from {source:#x} to {target:#x}")
}

fn aligned(what: &'static str, address: u64) -> Result<(), CudaError> {
    if address.is_multiple_of(4) {
        return Ok(());
    }
    Err(CudaError::refused(what, format!("the address {address:#x} is no multiple of 4")))
}

/// Asks until it is done: at once for some time, then after pauses of up to a millisecond.
pub(super) fn poll_until(
    what: &'static str,
    device: usize,
    deadline: Instant,
    mut is_done: impl FnMut() -> Result<bool, CudaError>,
) -> Result<(), CudaError> {
    let began = Instant::now();
    let mut pause = Duration::from_micros(10);
    for turn in 0_u64.. {
        if is_done()? {
            return Ok(());
        }
        let now = Instant::now();
        if now >= deadline {
            return Err(CudaError::TimedOut { what, device, waited: now - began });
        }
        match turn {
            0..200 => std::hint::spin_loop(),
            200..300 => std::thread::yield_now(),
            _ => {
                std::thread::sleep(pause.min(deadline - now));
                pause = (pause * 2).min(Duration::from_millis(1));
            }
        }
    }
    unreachable!("turns don't run out");
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "stream {:p} on CUDA device {}", self.0.raw, self.0.device.ordinal())
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if !matches!(self.owner, Owner::Here) || self.device.is_foreign() {
            return;
        }
        let destroyed = self.device.make_current().and_then(|_current| {
            // SAFETY: it is held by nobody else; the driver destroys it when the device has done what is left in it.
            self.device.check("cuStreamDestroy", unsafe { (self.device.functions().cuStreamDestroy_v2)(self.raw) })
        });
        bounded::report("a stream", self.device.ordinal(), destroyed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_ends_when_it_is_done_and_at_the_deadline() {
        let mut asked = 0;
        let far = Instant::now() + Duration::from_secs(60);
        let counted = || {
            asked += 1;
            Ok(asked == 310)
        };
        assert_eq!(poll_until("a test", 0, far, counted), Ok(()));
        assert_eq!(asked, 310);
        let late = poll_until("a test", 7, Instant::now() + Duration::from_millis(20), || Ok(false));
        let late = late.expect_err("it is never done");
        assert!(late.to_string().starts_with("a test on CUDA device 7: not done after"), "{late}");
        let failed = poll_until("a test", 0, far, || Err(CudaError::refused("a test", "planted")));
        assert_eq!(failed, Err(CudaError::refused("a test", "planted")));
    }

    #[test]
    fn words_are_aligned() {
        assert_eq!(aligned("wait for a value", 0x1000), Ok(()));
        for address in [0x1001, 0x1002, 0x1003] {
            let refused = aligned("wait for a value", address).expect_err("no multiple of 4").to_string();
            assert_eq!(refused, format!("wait for a value: the address {address:#x} is no multiple of 4"));
        }
    }
}
