//! What an address is, as the driver knows it, so that a caller's pointer can be checked before it is used.

use std::ffi::c_void;

use super::error::Code;
use super::sys::{Functions, functions};
use super::{CudaError, Device};

/// What lies at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Memory of the host that the driver doesn't know, or nothing.
    Host,
    /// Pinned memory of the host, which devices can use.
    Pinned,
    /// Memory that host and devices use, and that moves between them (`cudaMallocManaged`).
    Managed {
        /// The device for which it was allocated.
        device: usize,
    },
    /// Memory of a device.
    Device {
        /// The number of the device.
        device: usize,
        /// Where the allocation begins.
        base: u64,
        /// How much the allocation is.
        bytes: usize,
        /// Whether other processes can open it ([`super::DeviceMemory::export`]); if the driver says so.
        can_export: Option<bool>,
    },
}

const MEMORY_TYPE: u32 = 2;
const IS_MANAGED: u32 = 8;
const DEVICE_ORDINAL: u32 = 9;
const IS_LEGACY_CUDA_IPC_CAPABLE: u32 = 10;

const TYPE_HOST: u32 = 1;
const TYPE_DEVICE: u32 = 2;

/// What lies at an address of this process, for the host or for devices. No context is made for that: where the process uses no
/// device there is no memory of one.
///
/// # Errors
/// Without a driver, without a device, or if the context is lost.
pub fn pointer(address: u64) -> Result<Place, CudaError> {
    let functions = functions()?;
    let Some(device) = Device::in_use()? else { return Ok(Place::Host) };
    // Any context will do: addresses are those of the process.
    let _current = device.outside_capture()?;
    let kind = match attribute(functions, MEMORY_TYPE, address) {
        // What the driver has never heard of.
        Err(error) if error.code() == Some(Code::INVALID_VALUE) => return Ok(Place::Host),
        other => other?,
    };
    let owner = || attribute(functions, DEVICE_ORDINAL, address).map(|ordinal| ordinal as usize);
    if attribute(functions, IS_MANAGED, address).is_ok_and(|managed| managed != 0) {
        return owner().map(|device| Place::Managed { device });
    }
    match kind {
        TYPE_HOST => Ok(Place::Pinned),
        TYPE_DEVICE => {
            let device = owner()?;
            let (base, bytes) = range(&Device::open(device)?, address)?;
            let can_export = attribute(functions, IS_LEGACY_CUDA_IPC_CAPABLE, address).ok().map(|can| can != 0);
            Ok(Place::Device { device, base, bytes, can_export })
        }
        // Arrays have no addresses; 0 is what some drivers say of what they don't know.
        _ => Ok(Place::Host),
    }
}

fn attribute(functions: &Functions, attribute: u32, address: u64) -> Result<u32, CudaError> {
    let mut value = 0_u32;
    let data = (&raw mut value).cast::<c_void>();
    // SAFETY: the attributes that are asked for are numbers of 32 bits or truth values of 8, and the driver writes one.
    let code = unsafe { (functions.cuPointerGetAttribute)(data, attribute, address) };
    functions.check("cuPointerGetAttribute", None, code).map_err(|error| error.with(|| format!("at {address:#x}")))?;
    Ok(value)
}

fn range(device: &Device, address: u64) -> Result<(u64, usize), CudaError> {
    let _current = device.outside_capture()?;
    let (mut base, mut bytes) = (0, 0);
    // SAFETY: the driver writes both numbers.
    let code = unsafe { (device.functions().cuMemGetAddressRange_v2)(&raw mut base, &raw mut bytes, address) };
    device.check("cuMemGetAddressRange", code).map_err(|error| error.with(|| format!("at {address:#x}")))?;
    Ok((base, bytes))
}
