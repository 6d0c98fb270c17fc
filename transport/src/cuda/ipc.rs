//! Handles by which the processes of a host open each other's device memory and events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::sys as ffi;

use super::{CudaError, Device, Event, bounded};

/// What names memory or an event of one process to others of the same host: opaque bytes that may be sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(from = "Halves", into = "Halves")]
pub struct IpcHandle(pub [u8; 64]);

/// The bytes in arrays that serde knows.
type Halves = [[u8; 32]; 2];

impl From<Halves> for IpcHandle {
    fn from(halves: Halves) -> IpcHandle {
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&halves[0]);
        bytes[32..].copy_from_slice(&halves[1]);
        IpcHandle(bytes)
    }
}

impl From<IpcHandle> for Halves {
    fn from(handle: IpcHandle) -> Halves {
        let (mut first, mut second) = ([0; 32], [0; 32]);
        first.copy_from_slice(&handle.0[..32]);
        second.copy_from_slice(&handle.0[32..]);
        [first, second]
    }
}

impl std::fmt::Debug for IpcHandle {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("IpcHandle(")?;
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))?;
        out.write_str(")")
    }
}

impl IpcHandle {
    pub(super) fn of_memory(device: &Device, address: u64) -> Result<IpcHandle, CudaError> {
        let _current = device.outside_capture()?;
        let mut handle = ffi::CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: the driver writes the 64 bytes, and checks the address.
        let code = unsafe { (device.functions().cuIpcGetMemHandle)(&raw mut handle, address) };
        device.check("cuIpcGetMemHandle", code)?;
        Ok(IpcHandle(handle.reserved.map(|byte| byte as u8)))
    }
}

/// Memory of another process, mapped for a device of this one; clones are the same mapping. It is closed when the last clone
/// is dropped, which must be before the other process frees the memory.
///
/// It may be used from any thread, like [`super::DeviceMemory`].
#[derive(Clone)]
pub struct ImportedMemory(Arc<Mapping>);

struct Mapping {
    device: Device,
    handle: IpcHandle,
    address: u64,
}

/// Mappings by the device's number and the handle.
type Mappings = BTreeMap<(usize, IpcHandle), Weak<Mapping>>;

/// What is mapped in this process.
static MAPPED: Mutex<Mappings> = Mutex::new(BTreeMap::new());

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only flag that there is.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

impl Device {
    /// Maps memory that another process has exported. A handle that is mapped already gives the same mapping. Access between
    /// the devices is enabled if the memory is another device's.
    ///
    /// A handle outlives its memory: if the other process has freed it, the call fails, or gives what lies there now. Who
    /// imports proves what is there by what it reads ([`super::PeerFacts`]).
    ///
    /// # Errors
    /// If the memory can't be opened: its process or its device isn't seen, or the handle is this process's own.
    pub fn import(&self, handle: &IpcHandle) -> Result<ImportedMemory, CudaError> {
        let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (self.ordinal(), *handle);
        if let Some(known) = mapped.get(&key).and_then(Weak::upgrade) {
            return Ok(ImportedMemory(known));
        }
        mapped.retain(|_, mapping| mapping.strong_count() > 0);
        let _current = self.outside_capture()?;
        let mut address = 0;
        let raw = ffi::CUipcMemHandle { reserved: handle.0.map(|byte| byte as _) };
        // SAFETY: the driver writes one address, and checks the handle; what is opened is closed in `drop`.
        let code = unsafe { (self.functions().cuIpcOpenMemHandle_v2)(&raw mut address, raw, LAZY_ENABLE_PEER_ACCESS) };
        self.check("cuIpcOpenMemHandle", code)?;
        let mapping = Arc::new(Mapping { device: self.clone(), handle: *handle, address });
        mapped.insert(key, Arc::downgrade(&mapping));
        Ok(ImportedMemory(mapping))
    }

    /// Opens an event that another process has exported.
    ///
    /// # Errors
    /// If it can't be opened: its process or its device isn't seen, or the handle is this process's own.
    pub fn import_event(&self, handle: &IpcHandle) -> Result<Event, CudaError> {
        let _current = self.outside_capture()?;
        let mut event = std::ptr::null_mut();
        let raw = ffi::CUipcEventHandle { reserved: handle.0.map(|byte| byte as _) };
        // SAFETY: the driver writes one pointer, and checks the handle; the event is destroyed by `Event`.
        let code = unsafe { (self.functions().cuIpcOpenEventHandle)(&raw mut event, raw) };
        self.check("cuIpcOpenEventHandle", code)?;
        Ok(Event::from_raw(self, event))
    }
}

impl ImportedMemory {
    /// Where it is mapped, for the device that imported it and this process's streams on it.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.0.address
    }

    /// The device for which it is mapped.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.0.device
    }
}

impl std::fmt::Debug for ImportedMemory {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "another process's memory at {:#x} on CUDA device {}", self.0.address, self.0.device.ordinal())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.device.is_foreign() {
            return;
        }
        let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (self.device.ordinal(), self.handle);
        // The same handle may have been opened anew meanwhile, which is then counted by the driver.
        if mapped.get(&key).is_some_and(|mapping| mapping.strong_count() == 0) {
            mapped.remove(&key);
        }
        drop(mapped);
        let (device, address) = (self.device.clone(), self.address);
        bounded::give_back("another process's memory", device.ordinal(), move || {
            let _current = device.outside_capture()?;
            // SAFETY: it was opened once by `import`, and nobody has the mapping any more.
            device.check("cuIpcCloseMemHandle", unsafe { (device.functions().cuIpcCloseMemHandle)(address) })
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_can_be_sent() {
        let handle = IpcHandle(std::array::from_fn(|at| (3 * at) as u8));
        let sent = postcard::to_allocvec(&handle).expect("plain data");
        assert_eq!(sent, handle.0, "64 bytes, and none besides");
        assert_eq!(postcard::from_bytes::<IpcHandle>(&sent).expect("what was sent"), handle);
        assert!(postcard::from_bytes::<IpcHandle>(&sent[..63]).is_err());
    }
}
