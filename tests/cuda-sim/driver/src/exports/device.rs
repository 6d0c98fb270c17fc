//! Devices: what there is, and what it is like.

use std::ffi::{c_char, c_int, c_uint, c_void};

use cudarc::driver::sys::CUuuid;

use super::{api, put};
use crate::driver::driver;
use crate::error::{Code, Status};

/// Writes a text that ends with a zero, cut to `room` bytes.
///
/// # Safety
///
/// `place` has `room` bytes.
unsafe fn put_text(place: *mut c_char, room: c_int, text: &str) -> Status {
    let Some(most) = usize::try_from(room).ok().and_then(|room| room.checked_sub(1)).filter(|_| !place.is_null())
    else {
        return Err(Code::CUDA_ERROR_INVALID_VALUE);
    };
    let bytes = &text.as_bytes()[..text.len().min(most)];
    // SAFETY: the caller gives the room, and the text and its zero fit.
    unsafe {
        place.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        place.add(bytes.len()).write(0);
    }
    Ok(())
}

api! {
    fn cuDeviceGetCount(count: *mut c_int) {
        put(count, driver()?.devices.len() as c_int)
    }

    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        driver()?.device(ordinal)?;
        put(device, ordinal)
    }

    fn cuDeviceGetName(name: *mut c_char, room: c_int, device: c_int) {
        put_text(name, room, &driver()?.device(device)?.name())
    }

    fn cuDeviceGetUuid(uuid: *mut CUuuid, device: c_int) {
        put(uuid, CUuuid { bytes: driver()?.device(device)?.uuid().map(|byte| byte as c_char) })
    }

    fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: c_int) {
        put(uuid, CUuuid { bytes: driver()?.device(device)?.uuid().map(|byte| byte as c_char) })
    }

    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) {
        put(bytes, driver()?.device(device)?.memory as usize)
    }

    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int) {
        let driver = driver()?;
        put(value, driver.device(device)?.attribute(attribute, &driver.knobs)?)
    }

    fn cuDeviceGetPCIBusId(name: *mut c_char, room: c_int, device: c_int) {
        put_text(name, room, &driver()?.device(device)?.bus())
    }

    fn cuDeviceGetByPCIBusId(device: *mut c_int, name: *const c_char) {
        if name.is_null() {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        let name = std::ffi::CStr::from_ptr(name).to_string_lossy().to_lowercase();
        let found = driver()?.devices.iter().find(|device| device.bus() == name);
        put(device, found.ok_or(Code::CUDA_ERROR_INVALID_DEVICE)?.ordinal as c_int)
    }

    fn cuDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) {
        let driver = driver()?;
        let (device, peer) = (driver.device(device)?, driver.device(peer)?);
        put(can, c_int::from(driver.knobs.has_peers && device.ordinal != peer.ordinal))
    }

    fn cuDeviceGetP2PAttribute(value: *mut c_int, attribute: c_uint, device: c_int, peer: c_int) {
        let driver = driver()?;
        let (device, peer) = (driver.device(device)?, driver.device(peer)?);
        if device.ordinal == peer.ordinal {
            return Err(Code::CUDA_ERROR_INVALID_DEVICE);
        }
        let has_peers = c_int::from(driver.knobs.has_peers);
        match attribute {
            // The rank of the link: all are alike.
            1 => put(value, 0),
            // Access, and atomic operations over it.
            2 | 3 => put(value, has_peers),
            4 => put(value, 0),
            _ => Err(Code::CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// There is one pool, which nothing can be set of: memory that is freed goes back to the device at once.
    fn cuDeviceGetDefaultMemPool(pool: *mut *mut c_void, device: c_int) {
        let driver = driver()?;
        let device = driver.device(device)?;
        if !driver.knobs.has_pools {
            return Err(Code::CUDA_ERROR_NOT_SUPPORTED);
        }
        put(pool, (0x100 + device.ordinal) as *mut c_void)
    }

    fn cuDeviceGetMemPool(pool: *mut *mut c_void, device: c_int) {
        number_of(cuDeviceGetDefaultMemPool(pool, device))
    }

    fn cuMemPoolSetAttribute(_pool: *mut c_void, _attribute: c_uint, value: *mut c_void) {
        driver()?;
        if value.is_null() { Err(Code::CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
    }

    fn cuMemPoolTrimTo(_pool: *mut c_void, _bytes: usize) {
        driver().map(drop)
    }
}

fn number_of(code: Code) -> Status {
    if code == Code::CUDA_SUCCESS { Ok(()) } else { Err(code) }
}
