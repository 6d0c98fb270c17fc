//! Devices: what they are, their primary contexts, and who may reach whose memory.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::sys as ffi;

use super::error::Code;
use super::host::Spare;
use super::sys::{Functions, functions};
use super::{CudaError, bounded};
use crate::forks;

/// An opened device; clones are the same one.
///
/// Its primary context, which the CUDA runtime and frameworks use too, is held until the last clone and all that was made
/// from it are gone. A device may be used by any thread: each call makes the context current for itself, and restores what
/// was current before.
#[derive(Clone)]
pub struct Device(Arc<Opened>);

struct Opened {
    functions: &'static Functions,
    ordinal: usize,
    handle: ffi::CUdevice,
    context: ffi::CUcontext,
    generation: u32,
    name: String,
    uuid: [u8; 16],
    pci_bus_id: String,
    architecture: (u32, u32),
    total_memory: usize,
    multiprocessors: u32,
    can_wait_on_values: bool,
    spares: Mutex<Vec<Spare>>,
}

// SAFETY: the driver's functions may be called from any thread, and a context may be current for several at a time; the rest
// is plain data that doesn't change.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

/// The attributes of devices that are asked for, by their numbers in the driver's header.
const MULTIPROCESSOR_COUNT: u32 = 16;
const COMPUTE_CAPABILITY_MAJOR: u32 = 75;
const COMPUTE_CAPABILITY_MINOR: u32 = 76;
const CAN_USE_STREAM_MEM_OPS_V1: u32 = 92;
const CAN_USE_64_BIT_STREAM_MEM_OPS: u32 = 122;

/// The mode in which a thread's calls don't invalidate captures (`CU_STREAM_CAPTURE_MODE_RELAXED`).
const RELAXED: u32 = 2;

/// The devices that are open in this process, so that each is opened once.
static OPENED: Mutex<BTreeMap<usize, Weak<Opened>>> = Mutex::new(BTreeMap::new());

impl Device {
    /// How many devices this process sees.
    ///
    /// # Errors
    /// Without a driver, or without a device ([`CudaError::is_absence`]).
    pub fn count() -> Result<usize, CudaError> {
        let functions = functions()?;
        let mut count = 0;
        // SAFETY: the driver writes one number.
        functions.check("cuDeviceGetCount", None, unsafe { (functions.cuDeviceGetCount)(&raw mut count) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// The newest version of CUDA that the driver supports, 1000 for each major and 10 for each minor version (12040: 12.4).
    ///
    /// # Errors
    /// Without a driver, or without a device.
    pub fn driver_version() -> Result<u32, CudaError> {
        functions()?.version()
    }

    /// Opens the device with this number, and makes its primary context if there is none yet.
    ///
    /// # Errors
    /// Without a driver, if there is no device with this number, or if it has no memory left for a context.
    pub fn open(ordinal: usize) -> Result<Device, CudaError> {
        let functions = functions()?;
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = forks::generation();
        if let Some(known) = opened.get(&ordinal).and_then(Weak::upgrade) {
            let device = Device(known);
            return device.check_process().map(|()| device);
        }
        let device = Device(Arc::new(Opened::new(functions, ordinal, generation)?));
        opened.insert(ordinal, Arc::downgrade(&device.0));
        Ok(device)
    }

    /// The device whose primary context is current for this thread, if one is: the one that `cudaSetDevice` has chosen.
    ///
    /// # Errors
    /// Without a driver, or without a device.
    pub fn current() -> Result<Option<Device>, CudaError> {
        let functions = functions()?;
        let mut now = std::ptr::null_mut();
        // SAFETY: the driver writes one pointer.
        functions.check("cuCtxGetCurrent", None, unsafe { (functions.cuCtxGetCurrent)(&raw mut now) })?;
        if now.is_null() {
            return Ok(None);
        }
        for ordinal in 0..Device::count()? {
            let device = Device::open(ordinal)?;
            if device.context() == now {
                return Ok(Some(device));
            }
        }
        Ok(None)
    }

    /// A device whose primary context this process uses already, whoever made it; none is made for that.
    pub(super) fn in_use() -> Result<Option<Device>, CudaError> {
        let opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        let known = opened.values().find_map(Weak::upgrade).map(Device);
        drop(opened);
        if let Some(device) = known {
            return device.check_process().map(|()| Some(device));
        }
        let functions = functions()?;
        for ordinal in 0..Device::count()? {
            let check = |call, code| functions.check(call, Some(ordinal), code);
            let number = i32::try_from(ordinal).unwrap_or(i32::MAX);
            let (mut handle, mut flags, mut is_active) = (0, 0, 0);
            // SAFETY: the driver writes one number.
            check("cuDeviceGet", unsafe { (functions.cuDeviceGet)(&raw mut handle, number) })?;
            // SAFETY: the driver writes both numbers.
            let code = unsafe { (functions.cuDevicePrimaryCtxGetState)(handle, &raw mut flags, &raw mut is_active) };
            check("cuDevicePrimaryCtxGetState", code)?;
            if is_active != 0 {
                return Device::open(ordinal).map(Some);
            }
        }
        Ok(None)
    }

    /// The number of the device in this process.
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.0.ordinal
    }

    /// What its maker calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What tells it from all others, in every process and on every host; a slice of a device (MIG) has one of its own.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.0.uuid
    }

    /// Where it sits, such as `0000:3B:00.0`.
    #[must_use]
    pub fn pci_bus_id(&self) -> &str {
        &self.0.pci_bus_id
    }

    /// Its compute capability: (9, 0) for `sm_90`.
    #[must_use]
    pub fn architecture(&self) -> (u32, u32) {
        self.0.architecture
    }

    /// All of its memory, in bytes.
    #[must_use]
    pub fn total_memory(&self) -> usize {
        self.0.total_memory
    }

    /// Its memory that nobody has taken at present, in bytes.
    ///
    /// # Errors
    /// If the context is lost, or in a forked process.
    pub fn free_memory(&self) -> Result<usize, CudaError> {
        let _current = self.outside_capture()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the driver writes both numbers.
        self.check("cuMemGetInfo", unsafe { (self.functions().cuMemGetInfo_v2)(&raw mut free, &raw mut total) })?;
        Ok(free)
    }

    /// How many multiprocessors it has.
    #[must_use]
    pub fn multiprocessors(&self) -> u32 {
        self.0.multiprocessors
    }

    /// Whether its streams can wait for values in memory, and write them ([`super::Stream::wait_value`]).
    #[must_use]
    pub fn can_wait_on_values(&self) -> bool {
        self.0.can_wait_on_values
    }

    /// Whether it can read and write the memory of `other`.
    ///
    /// # Errors
    /// If the driver can't say.
    pub fn can_access(&self, other: &Device) -> Result<bool, CudaError> {
        if self == other {
            return Ok(true);
        }
        let mut can = 0;
        // SAFETY: the driver writes one number; both devices exist.
        let code = unsafe { (self.functions().cuDeviceCanAccessPeer)(&raw mut can, self.0.handle, other.0.handle) };
        self.check("cuDeviceCanAccessPeer", code)?;
        Ok(can != 0)
    }

    /// Whether it can read and write the memory of the device with this [`Device::uuid`]; nothing if this process doesn't see
    /// that device. It isn't opened for that.
    pub(super) fn can_access_uuid(&self, uuid: [u8; 16]) -> Result<Option<bool>, CudaError> {
        if self.uuid() == uuid {
            return Ok(Some(true));
        }
        for number in 0..Device::count()? {
            let (functions, number) = (self.functions(), i32::try_from(number).unwrap_or(i32::MAX));
            let (mut handle, mut found, mut can) = (0, ffi::CUuuid { bytes: [0; 16] }, 0);
            // SAFETY: the driver writes one number.
            self.check("cuDeviceGet", unsafe { (functions.cuDeviceGet)(&raw mut handle, number) })?;
            // SAFETY: the driver writes 16 bytes.
            self.check("cuDeviceGetUuid", unsafe { (functions.cuDeviceGetUuid_v2)(&raw mut found, handle) })?;
            if found.bytes.map(|byte| byte as u8) == uuid {
                // SAFETY: the driver writes one number; both devices exist.
                let code = unsafe { (functions.cuDeviceCanAccessPeer)(&raw mut can, self.0.handle, handle) };
                return self.check("cuDeviceCanAccessPeer", code).map(|()| Some(can != 0));
            }
        }
        Ok(None)
    }

    /// Lets this device read and write all memory of `other`. That this is so already is fine; it stays so for the process.
    ///
    /// # Errors
    /// If the devices can't reach each other, or if this one has too many peers.
    pub fn enable_peer(&self, other: &Device) -> Result<(), CudaError> {
        if self == other {
            return Ok(());
        }
        let _current = self.outside_capture()?;
        // SAFETY: the other's context is held by it.
        let code = unsafe { (self.functions().cuCtxEnablePeerAccess)(other.0.context, 0) };
        if code == Code::PEER_ACCESS_ALREADY_ENABLED {
            return Ok(());
        }
        let detail = || format!("to the memory of CUDA device {} ({})", other.ordinal(), other.pci_bus_id());
        self.check("cuCtxEnablePeerAccess", code).map_err(|error| error.with(detail))
    }

    /// Makes the device's context current for this thread, until the guard is dropped. Calls of this module don't need it.
    ///
    /// # Errors
    /// In a forked process.
    pub fn make_current(&self) -> Result<Current<'_>, CudaError> {
        self.check_process()?;
        let functions = self.functions();
        let mut now = std::ptr::null_mut();
        // SAFETY: the driver writes one pointer.
        self.check("cuCtxGetCurrent", unsafe { (functions.cuCtxGetCurrent)(&raw mut now) })?;
        let is_pushed = now != self.0.context;
        if is_pushed {
            // SAFETY: the context is held by the device.
            self.check("cuCtxPushCurrent", unsafe { (functions.cuCtxPushCurrent_v2)(self.0.context) })?;
        }
        Ok(Current { device: self, is_pushed, thread: PhantomData })
    }

    /// As [`Device::make_current`], for calls that a capture by another part of the program would forbid, and that would
    /// then spoil the capture: they have nothing to do with what is captured.
    pub(super) fn outside_capture(&self) -> Result<Outside<'_>, CudaError> {
        let current = self.make_current()?;
        let mut mode = RELAXED;
        // SAFETY: the driver exchanges the number for the thread's mode so far.
        let code = unsafe { (self.functions().cuThreadExchangeStreamCaptureMode)(&raw mut mode) };
        self.check("cuThreadExchangeStreamCaptureMode", code)?;
        Ok(Outside { before: mode, current })
    }

    pub(super) fn take_spare(&self) -> Option<Spare> {
        self.0.spares.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    pub(super) fn keep_spare(&self, spare: Spare) {
        self.0.spares.lock().unwrap_or_else(PoisonError::into_inner).push(spare);
    }

    pub(super) fn functions(&self) -> &'static Functions {
        self.0.functions
    }

    pub(super) fn context(&self) -> ffi::CUcontext {
        self.0.context
    }

    /// What became of a call on this device.
    pub(super) fn check(&self, call: &'static str, code: u32) -> Result<(), CudaError> {
        self.0.functions.check(call, Some(self.0.ordinal), code)
    }

    /// Whether this process is a forked child of the one that opened the device.
    pub(super) fn is_foreign(&self) -> bool {
        self.0.generation != forks::generation()
    }

    fn check_process(&self) -> Result<(), CudaError> {
        if self.is_foreign() { Err(CudaError::Forked { device: self.0.ordinal }) } else { Ok(()) }
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        self.0.ordinal == other.0.ordinal
    }
}

impl Eq for Device {}

impl std::fmt::Debug for Device {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "CUDA device {} ({}, {})", self.0.ordinal, self.0.name, self.0.pci_bus_id)
    }
}

impl Opened {
    fn new(functions: &'static Functions, ordinal: usize, generation: u32) -> Result<Opened, CudaError> {
        let check = |call, code| functions.check(call, Some(ordinal), code);
        let number = i32::try_from(ordinal).unwrap_or(i32::MAX);
        let mut handle = 0;
        // SAFETY: the driver writes one number.
        let code = unsafe { (functions.cuDeviceGet)(&raw mut handle, number) };
        check("cuDeviceGet", code)
            .map_err(|error| error.with(|| format!("this process sees {} devices", Device::count().unwrap_or(0))))?;
        let attribute = |attribute| {
            let mut value = 0;
            // SAFETY: the driver writes one number.
            let code = unsafe { (functions.cuDeviceGetAttribute)(&raw mut value, attribute, handle) };
            check("cuDeviceGetAttribute", code).map(|()| u32::try_from(value).unwrap_or(0))
        };
        let text = |call, says: unsafe extern "C" fn(*mut c_char, i32, ffi::CUdevice) -> u32| {
            let mut text = [0_u8; 128];
            // SAFETY: the driver writes at most so many bytes, with a zero at the end.
            check(call, unsafe { says(text.as_mut_ptr().cast(), text.len() as i32, handle) })?;
            let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
            Ok::<_, CudaError>(String::from_utf8_lossy(&text[..end]).into_owned())
        };
        let mut uuid = ffi::CUuuid { bytes: [0; 16] };
        // SAFETY: the driver writes the 16 bytes.
        check("cuDeviceGetUuid", unsafe { (functions.cuDeviceGetUuid_v2)(&raw mut uuid, handle) })?;
        let mut total_memory = 0;
        // SAFETY: the driver writes one number.
        check("cuDeviceTotalMem", unsafe { (functions.cuDeviceTotalMem_v2)(&raw mut total_memory, handle) })?;
        // An older driver doesn't know the newer number, a newer one may say no to the older.
        let waits = [CAN_USE_64_BIT_STREAM_MEM_OPS, CAN_USE_STREAM_MEM_OPS_V1];
        let mut device = Opened {
            functions,
            ordinal,
            handle,
            context: std::ptr::null_mut(),
            generation,
            name: text("cuDeviceGetName", functions.cuDeviceGetName)?,
            uuid: uuid.bytes.map(|byte| byte as u8),
            pci_bus_id: text("cuDeviceGetPCIBusId", functions.cuDeviceGetPCIBusId)?,
            architecture: (attribute(COMPUTE_CAPABILITY_MAJOR)?, attribute(COMPUTE_CAPABILITY_MINOR)?),
            total_memory,
            multiprocessors: attribute(MULTIPROCESSOR_COUNT)?,
            spares: Mutex::default(),
            can_wait_on_values: waits.into_iter().any(|number| attribute(number).is_ok_and(|value| value != 0)),
        };
        // Last, so that what is dropped with a null context was never retained.
        let mut context = std::ptr::null_mut();
        // SAFETY: the driver writes one pointer; what is retained here is released in `drop`.
        check("cuDevicePrimaryCtxRetain", unsafe { (functions.cuDevicePrimaryCtxRetain)(&raw mut context, handle) })?;
        device.context = context;
        Ok(device)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.context.is_null() || self.generation != forks::generation() {
            return;
        }
        let (functions, ordinal, handle) = (self.functions, self.ordinal, self.handle);
        let context = self.context.expose_provenance();
        let spares = std::mem::take(self.spares.get_mut().unwrap_or_else(PoisonError::into_inner));
        bounded::give_back("the primary context", ordinal, move || {
            if !spares.is_empty() {
                let mut popped = std::ptr::null_mut();
                // SAFETY: the context is held until the call below; the thread is this function's own.
                unsafe {
                    (functions.cuCtxPushCurrent_v2)(std::ptr::with_exposed_provenance_mut(context));
                    spares.into_iter().for_each(|spare| _ = spare.free(functions));
                    (functions.cuCtxPopCurrent_v2)(&raw mut popped);
                }
            }
            // SAFETY: it was retained once by `new`; what was made in it held the device, and is gone.
            functions.check("cuDevicePrimaryCtxRelease", Some(ordinal), unsafe {
                (functions.cuDevicePrimaryCtxRelease_v2)(handle)
            })
        });
    }
}

/// The device's context is current for this thread while this lives; then what was current before is so again.
#[must_use = "the context is current only while the guard lives"]
pub struct Current<'a> {
    device: &'a Device,
    is_pushed: bool,
    /// Contexts are current for threads: the guard stays on its own.
    thread: PhantomData<*mut ()>,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        if self.is_pushed && !self.device.is_foreign() {
            let mut popped = std::ptr::null_mut();
            // SAFETY: the driver writes one pointer; it was pushed by `make_current` on this thread.
            let code = unsafe { (self.device.functions().cuCtxPopCurrent_v2)(&raw mut popped) };
            bounded::report("the current context", self.device.ordinal(), self.device.check("cuCtxPopCurrent", code));
        }
    }
}

/// As [`Current`], and the thread's calls don't count for captures meanwhile.
pub(super) struct Outside<'a> {
    before: u32,
    current: Current<'a>,
}

impl Drop for Outside<'_> {
    fn drop(&mut self) {
        let device = self.current.device;
        let mut mode = self.before;
        // SAFETY: the driver exchanges the number, which is the one that it gave.
        let code = unsafe { (device.functions().cuThreadExchangeStreamCaptureMode)(&raw mut mode) };
        let restored = device.check("cuThreadExchangeStreamCaptureMode", code);
        bounded::report("the thread's capture mode", device.ordinal(), restored);
    }
}
